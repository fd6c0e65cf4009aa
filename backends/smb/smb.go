package smb

import (
	"context"
	"math/rand/v2"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	smb2 "github.com/cloudsoda/go-smb2"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

// Backend is a share as a store. Its methods are safe for concurrent use.
type Backend struct {
	pool  *pool
	extra chan struct{} // one token per chunk beyond the first of a stream
	left  backends.Orphans

	mu      sync.Mutex // guards the fields below
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

// parallelism is the recommended number of streams. It leaves some transfers of the sessions to
// extra chunks, so that a few streams also fill them. A distant server gets more extra chunks: much
// is in flight then, and few received chunks wait in memory.
const parallelism, extraNear, extraFar = 10, 4, 12

// Capabilities implements backends.Backend.
func (b *Backend) Capabilities() backends.Capabilities {
	return backends.Capabilities{
		AtomicReplace: true, ConditionalCreate: true, Guard: backends.GuardClaim,
		Parallelism: parallelism, PartSize: 8 << 20,
	}
}

// Close implements backends.Backend. It removes the temporary files of failed writes.
func (b *Backend) Close() error {
	b.left.SweepAtClose(b.removeOrphan)
	b.pool.Close()
	return nil
}

// describe returns the object for a file.
func describe(key string, info *smb2.FileStat) backends.Object {
	return attributes(info).Object(tree{}, key)
}

// sameVersion reports whether two versions match. Servers without file ids send id 0 in listings
// (MS-FSCC). In that case only size and modification time are compared.
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

// noID is the suffix of a version with an unknown file id.
const noID = "-0"

// CheckKey implements backends.KeyChecker.
func (b *Backend) CheckKey(key string) error {
	return checkKey("create", key, b.pool.dialer.mapped)
}

// Stat implements backends.Source.
func (b *Backend) Stat(ctx context.Context, key string) (backends.Object, error) {
	if err := fileshare.CheckCall(ctx, b.tree(), "stat", key); err != nil {
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
	if err := attributes(info).Regular("stat", key); err != nil {
		return backends.Object{}, err
	}
	return describe(key, info), nil
}

// statKey returns the attributes of a key. It waits while this process displaces the file.
func (b *Backend) statKey(ctx context.Context, s *session, key string) (*smb2.FileStat, error) {
	if err := b.enter(ctx, key); err != nil {
		return nil, err
	}
	return statPath(ctx, s, key)
}

// statPath returns the attributes of a name. It opens the file, because only an open file reports
// its id.
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
	defer f.Close() // read-only
	return statFile(f)
}

// statFile returns the attributes of an open file. The library requests responses of 1 MiB even
// when it has fewer credits, which the server rejects with STATUS_INVALID_PARAMETER. statFile
// retries, because credits are returned when other calls end.
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

// patience is how long a call waits for clients that hold a file open exclusively. Most hold it
// only for the duration of a rename.
const patience = 5 * time.Second

// busy reports whether an error may go away when another client closes the file.
func busy(err error) bool { return status(err) == statusSharingViolation }

// patiently repeats try while worth accepts its error, until patience runs out.
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
		case <-time.After(pause/2 + rand.N(pause)): // jitter
		}
	}
}

// displace removes or replaces a file. Servers refuse that while the file is open, so displace
// first closes the handles of this process. Its readers reopen the file and detect the change. For
// other clients it waits.
func (b *Backend) displace(ctx context.Context, key string, worth func(error) bool, try func() error) error {
	defer b.shut(key)()
	return patiently(ctx, worth, func() error {
		if err := b.letGo(ctx, key); err != nil {
			return err
		}
		return try()
	})
}

// Delete implements backends.Sink. It also removes directories that become empty.
func (b *Backend) Delete(ctx context.Context, key string) error {
	if err := fileshare.CheckCall(ctx, b.tree(), "delete", key); backends.KindOf(err) == backends.NotExist {
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
		return nil // not an object
	}
	err = b.displace(ctx, key, busy, func() error { return removePath(ctx, s, key) })
	if err != nil {
		return err
	}
	b.prune(ctx, path.Dir(key))
	return nil
}

func removePath(ctx context.Context, s *session, name string) error {
	_, err := call(ctx, s, func(share *smb2.Share) (struct{}, error) { return struct{}{}, share.Remove(name) }, nil)
	return err
}

// prune removes dir and its parents as long as they are empty.
func (b *Backend) prune(ctx context.Context, dir string) {
	fileshare.Prune(dir, "", func(dir string) error {
		s, err := b.pool.get(ctx)
		if err != nil {
			return err
		}
		return removePath(ctx, s, dir)
	})
}
