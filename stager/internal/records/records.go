// Package records reads and writes the small objects by which several processes coordinate through
// a store: who takes part, how work is divided, which checkpoint exists.
//
// A record is written only by compare-and-swap: [Create] writes a record if there is none,
// [Replace] replaces the version that was read. If several writers saw the same state, one
// succeeds, as far as the store guarantees it; see [Decides].
package records

import (
	"context"
	"errors"

	"github.com/stager-dev/stager/backends"
)

// readTries is how often Read retries if the record is replaced while it is read.
const readTries = 5

// Read returns the current record and its version. A record of more than limit bytes is an error of
// kind Invalid.
func Read(ctx context.Context, store *backends.Store, key string, limit int64) ([]byte, backends.Version, error) {
	body, obj, err := store.ReadAll(ctx, key, limit)
	for tries := 1; tries < readTries && backends.KindOf(err) == backends.Changed; tries++ {
		body, obj, err = store.ReadAll(ctx, key, limit)
	}
	return body, obj.Version, err
}

// ReadListed returns a record from a listing. It needs one request less than [Read], unless the
// record was replaced since.
func ReadListed(ctx context.Context, store *backends.Store, listed backends.Object, limit int64) ([]byte, backends.Version, error) {
	if listed.Version == "" || listed.Size > limit {
		return Read(ctx, store, listed.Key, limit)
	}
	body := make([]byte, listed.Size)
	_, err := store.ReadRange(ctx, listed, 0, listed.Size, backends.Stretch{Bytes: body}, nil)
	if backends.KindOf(err) == backends.Changed && err != nil {
		return Read(ctx, store, listed.Key, limit)
	}
	return body, listed.Version, err
}

// Create writes a record if there is none, and returns its version. An error of kind Exist means
// that there is one. It may be the caller's own, if the response to an earlier try was lost.
func Create(ctx context.Context, store *backends.Store, key string, body []byte) (backends.Version, error) {
	obj, err := store.PutBytes(ctx, key, body, backends.CreateOptions{IfAbsent: true})
	return obj.Version, err
}

// Replace replaces the version over of a record, and returns the new version. An error of kind
// Changed means that the record has another version, or was removed; it may be the caller's own, as
// with [Create]. Without a version Replace writes nothing, since it would replace any record.
func Replace(ctx context.Context, store *backends.Store, key string, body []byte, over backends.Version) (backends.Version, error) {
	if over == "" {
		return "", &backends.Error{
			Op: "write", Store: store.Name(), Key: key, Kind: backends.Unsupported,
			Err: errors.New("the store returned no version of this record, so it cannot be replaced safely"),
		}
	}
	obj, err := store.PutBytes(ctx, key, body, backends.CreateOptions{IfVersion: over})
	if err != nil && backends.KindOf(err) == backends.NotExist {
		err = &backends.Error{Op: "write", Store: store.Name(), Key: key, Kind: backends.Changed, Err: err}
	}
	return obj.Version, err
}

// Unwritten reports whether an error of [Create] or [Replace] proves that nothing was written.
// After any other error, except those of kind Exist or Changed, the write may have happened or may
// still happen.
func Unwritten(err error) bool {
	switch backends.KindOf(err) {
	case backends.Permission, backends.Invalid, backends.Unsupported, backends.NoSpace:
		return err != nil
	}
	return false
}

// Decides reports whether the store guarantees that only one of several concurrent writers
// succeeds: in creating a record, and in replacing one. Without the guarantee two writers may both
// succeed, and callers must read the record again.
func Decides(store *backends.Store) (create, replace bool) {
	f := store.Capabilities()
	return f.ConditionalCreate, f.Guard != backends.GuardNone
}
