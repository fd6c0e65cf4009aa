package smb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	smb2 "github.com/cloudsoda/go-smb2"

	"github.com/stager-dev/stager/backends"
)

// Backend is a share as a store. All methods may be called from many goroutines at
// once.
type Backend struct {
	pool  *pool
	extra chan struct{} // a place for each chunk beyond a stream's first
	left  backends.Orphans

	mu      sync.Mutex // guards all below
	handles map[string]map[*handle]bool
	gates   map[string]*exclusive
}

var (
	_ backends.Backend     = (*Backend)(nil)
	_ backends.PartCreator = (*Backend)(nil)
	_ backends.KeyChecker  = (*Backend)(nil)
)

func newBackend(d *dialer) *Backend {
	return &Backend{
		pool: newPool(d), extra: make(chan struct{}, extraFar),
		handles: make(map[string]map[*handle]bool), gates: make(map[string]*exclusive),
	}
}

// parallelism leaves some of the sessions' transfers to extra chunks, so that a few
// streams fill them too. There are more of these where the server is far: much is
// under way then, and little of it has arrived and waits.
const parallelism, extraNear, extraFar = 10, 4, 12

// Capabilities implements backends.Backend.
func (b *Backend) Capabilities() backends.Capabilities {
	return backends.Capabilities{
		AtomicReplace: true, ConditionalCreate: true, Guard: backends.GuardClaim,
		Parallelism: parallelism, PartSize: 8 << 20,
	}
}

// Close implements backends.Backend. It removes what is left of broken writes.
func (b *Backend) Close() error {
	b.left.SweepAtClose(b.removeOrphan)
	b.pool.close()
	return nil
}

// describe is a file as an object.
func describe(key string, info *smb2.FileStat) backends.Object {
	return backends.Object{
		Key: key, Size: info.EndOfFile, ModTime: info.LastWriteTime,
		Version: backends.Version(fmt.Sprintf("%x-%x-%x", info.EndOfFile, info.LastWriteTime.UnixNano(), info.FileId)),
	}
}

// sameVersion compares two versions. A file id of 0, which servers without ids send in
// listings, says nothing (MS-FSCC), so the rest decides.
func sameVersion(a, b backends.Version) bool {
	if a == b {
		return true
	}
	restA, withoutA := strings.CutSuffix(string(a), noID)
	restB, withoutB := strings.CutSuffix(string(b), noID)
	switch {
	case withoutA == withoutB:
		return false
	case withoutA:
		return strings.HasPrefix(string(b), restA+"-")
	}
	return strings.HasPrefix(string(a), restB+"-")
}

// noID is how the version of a file ends whose id is not known.
const noID = "-0"

// CheckKey implements backends.KeyChecker.
func (b *Backend) CheckKey(key string) error {
	return checkKey("create", key, b.pool.dialer.mapped)
}

// begins is how every call for one key begins that does not write.
func (b *Backend) begins(ctx context.Context, op, key string) error {
	if err := ended(ctx, op, key); err != nil {
		return err
	}
	if err := checkKey(op, key, b.pool.dialer.mapped); err != nil {
		return backends.Errorf(backends.NotExist, op, key, "%w", errors.Unwrap(err))
	}
	return nil
}

// Stat implements backends.Source.
func (b *Backend) Stat(ctx context.Context, key string) (backends.Object, error) {
	if err := b.begins(ctx, "stat", key); err != nil {
		return backends.Object{}, err
	}
	s, err := b.pool.get(ctx)
	if err != nil {
		return backends.Object{}, err
	}
	info, err := b.statKey(ctx, s, key)
	if err != nil {
		return backends.Object{}, missing("stat", key, err)
	}
	if info.IsDir() {
		return backends.Object{}, backends.Errorf(backends.NotExist, "stat", key, "this is a directory, not a file")
	}
	return describe(key, info), nil
}

// statKey describes what has a key, when nobody here is about to displace it.
func (b *Backend) statKey(ctx context.Context, s *session, key string) (*smb2.FileStat, error) {
	if err := b.enter(ctx, key); err != nil {
		return nil, err
	}
	return statPath(ctx, s, key)
}

// statPath describes what has a name. Only an open file tells its id.
func statPath(ctx context.Context, s *session, name string) (info *smb2.FileStat, err error) {
	err = patiently(ctx, busy, func() error {
		info, err = call(ctx, s, func(share *smb2.Share) (*smb2.FileStat, error) { return statShared(share, name) }, nil)
		return err
	})
	return info, err
}

func statShared(share *smb2.Share, name string) (*smb2.FileStat, error) {
	f, err := share.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // opened for reading
	return statFile(f)
}

// statFile describes an open file. The library asks for answers of a megabyte even
// when it has credits for less, which the server calls a wrong parameter; credits
// come back when other calls end.
func statFile(f *smb2.File) (*smb2.FileStat, error) {
	for pause := time.Millisecond; ; pause *= 2 {
		info, err := f.Stat()
		if status(err) == statusInvalidParameter && pause < 2*time.Second {
			time.Sleep(pause)
			continue
		}
		if err != nil {
			return nil, err
		}
		return info.(*smb2.FileStat), nil
	}
}

// How long those are waited for who have a file open in a way that excludes others.
// Most do for as long as a rename takes.
const patience = 5 * time.Second

// busy tells whether an error may be gone when another client has closed the file.
func busy(err error) bool { return status(err) == statusSharingViolation }

// patiently repeats try while it fails with what is worth waiting for.
func patiently(ctx context.Context, worth func(error) bool, try func() error) error {
	since := time.Now()
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		err := try()
		if err == nil || !worth(err) || time.Since(since) > patience {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause/2 + rand.N(pause)): // not all at once
		}
	}
}

// displace removes or replaces a file. Servers refuse that while the file is open, so
// this process lets go of it first; its readers open it again and see what became of
// it. Others are waited for.
func (b *Backend) displace(ctx context.Context, key string, worth func(error) bool, try func() error) error {
	defer b.shut(key)()
	return patiently(ctx, worth, func() error {
		if err := b.letGo(ctx, key); err != nil {
			return err
		}
		return try()
	})
}

// Delete implements backends.Sink. Directories that it leaves empty go too.
func (b *Backend) Delete(ctx context.Context, key string) error {
	if err := b.begins(ctx, "delete", key); backends.KindOf(err) == backends.NotExist {
		return nil // no object has such a key
	} else if err != nil {
		return err
	}
	s, err := b.pool.get(ctx)
	if err != nil {
		return err
	}
	if err := missing("delete", key, b.remove(ctx, s, key)); backends.KindOf(err) != backends.NotExist {
		return err
	}
	return nil
}

func (b *Backend) remove(ctx context.Context, s *session, key string) error {
	info, err := call(ctx, s, func(share *smb2.Share) (os.FileInfo, error) { return share.Stat(key) }, nil)
	if err != nil && !busy(err) {
		return err
	}
	if err == nil && info.IsDir() {
		return nil // it is no object
	}
	err = b.displace(ctx, key, busy, func() error { return removePath(ctx, s, key) })
	if err != nil {
		return err
	}
	prune(ctx, s, path.Dir(key))
	return nil
}

func removePath(ctx context.Context, s *session, name string) error {
	_, err := call(ctx, s, func(share *smb2.Share) (struct{}, error) { return struct{}{}, share.Remove(name) }, nil)
	return err
}

// prune removes dir and those it lies in, as far as they are empty.
func prune(ctx context.Context, s *session, dir string) {
	for ; dir != "."; dir = path.Dir(dir) {
		if removePath(ctx, s, dir) != nil {
			return
		}
	}
}
