package check

import (
	"strings"

	"github.com/stager-dev/stager/backends"
)

// Maximum lengths of names and keys that are tried, in bytes.
const (
	MostName = 1024
	MostKey  = 4096
)

// capabilities finds the capabilities that no protocol reports.
func (r *run) capabilities(there []backends.Object) {
	r.step("looking for the longest name")
	reported := r.Store.Capabilities()
	f := &r.report.Capabilities
	f.AtomicReplace, f.ConditionalCreate, f.PinnedReads = reported.AtomicReplace, reported.ConditionalCreate, reported.PinnedReads
	f.PartBytes, f.MaxParts, f.Connections = reported.PartSize, reported.MaxParts, r.connections
	if r.stopped != "" || r.ctx.Err() != nil {
		return
	}
	if r.report.ReadOnly {
		for _, obj := range sample(there) {
			if f.Checksum == "" && obj.Size > 0 {
				f.Checksum = r.checksumOf(r.Store, obj)
			}
		}
		return
	}
	if obj, err := r.scratch.PutBytes(r.ctx, "sum", []byte("stager check\n"), backends.CreateOptions{}); err == nil {
		f.Checksum = r.checksumOf(r.scratch, obj)
	}
	f.LongestName = r.longest(MostName, func(n int) string { return strings.Repeat("n", n) })
	f.LongestKey = r.longest(MostKey-len(r.rel), deepKey)
	if f.LongestKey > 0 {
		f.LongestKey += len(r.rel)
	}
}

// deepKey returns a key of n bytes, in directories with short names.
func deepKey(n int) string {
	key := []byte(strings.Repeat("k", n))
	for i := 49; i < n-1; i += 50 {
		key[i] = '/'
	}
	return string(key)
}

// checksumOf returns the algorithm of the checksum that the store reports when an object is listed,
// looked up or read.
func (r *run) checksumOf(store *backends.Store, obj backends.Object) string {
	if obj, err := store.Stat(r.ctx, obj.Key); err == nil && !obj.Sum.IsZero() {
		return string(obj.Sum.Algorithm)
	}
	sum, err := store.ReadRange(r.ctx, obj, 0, min(obj.Size, 1), nowhere{}, nil)
	if err != nil {
		return ""
	}
	return string(sum.Algorithm)
}

// nowhere discards all bytes.
type nowhere struct{}

func (nowhere) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }

// longest returns the length of the longest key that the store accepts, up to a limit; 0 if the store
// fails requests whatever the key is.
func (r *run) longest(limit int, key func(n int) string) int {
	works, fails := 0, limit+1
	for try := limit; fails-works > 1 && r.ctx.Err() == nil; try = (works + fails) / 2 {
		switch err := r.accepts(key(try)); {
		case err == nil:
			works = try
		case backends.KindOf(err).Retryable():
			return 0
		default:
			fails = try
		}
	}
	return works
}

// accepts returns nil if the store accepts a key, and an error that is not retryable if it does not.
// Some servers return HTTP 500 for a name that is too long for their file system, so patience would
// be in vain: the store accepts short names at the same time.
func (r *run) accepts(key string) error {
	once := r.scratch.Impatient(1)
	err := r.keeps(once, key)
	if !backends.KindOf(err).Retryable() {
		return err
	}
	if err := r.keeps(r.scratch, "short"); err != nil {
		return err
	}
	if err = r.keeps(once, key); err != nil {
		err = backends.Errorf(backends.Invalid, "create", "", "%w", err)
	}
	return err
}

// keeps writes an empty object and looks it up.
func (r *run) keeps(store *backends.Store, key string) error {
	_, err := store.PutBytes(r.ctx, key, nil, backends.CreateOptions{})
	if err == nil {
		_, err = store.Stat(r.ctx, key)
	}
	if err == nil {
		_ = store.Delete(r.ctx, key) // the whole scratch directory is removed later
	}
	return err
}
