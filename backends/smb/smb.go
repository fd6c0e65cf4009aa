package smb

import (
	"context"
	"errors"
	"io/fs"
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
	*fileshare.Share
	pool  *pool
	extra chan struct{} // one token per chunk beyond the first of a stream

	mu      sync.Mutex // guards the fields below
	handles map[string]map[*handle]bool
	gates   map[string]*exclusive
}

var _ backends.Backend = (*Backend)(nil)

func newBackend(d *dialer) *Backend {
	b := &Backend{
		pool: newPool(d), extra: make(chan struct{}, extraFar),
		handles: make(map[string]map[*handle]bool), gates: make(map[string]*exclusive),
	}
	b.Share = fileshare.New(protocol{b}, fileshare.Config{Open: protocol{b}.Open, ChunkSize: chunkSize, Window: window, Budget: extraChunks{b}, PartSize: partSize})
	return b
}

// chunkSize is the payload of one request. Servers accept twice as much, but that is not faster. A
// chunk costs memory twice: in fileshare and in the receive buffer of the library, which doubles
// when it decrypts.
const chunkSize = 512 << 10

// window limits the chunks in flight of one stream. The first one is always available; the others
// share the extra chunks of the Backend.
const window = 8

// parallelism is the recommended number of streams. It leaves some transfers of the sessions to
// extra chunks, so that a few streams also fill them. A distant server gets more extra chunks: much
// is in flight then, and few received chunks wait in memory.
const parallelism, extraNear, extraFar = 10, 4, 12

// partSize is the number of bytes in one stream.
const partSize = 8 << 20

// extraChunks is the budget for chunks beyond the first of a stream.
type extraChunks struct{ b *Backend }

func (e extraChunks) Acquire() bool {
	if !e.b.pool.far.Load() && len(e.b.extra) >= extraNear {
		return false // a race may allow one more, which does no harm
	}
	select {
	case e.b.extra <- struct{}{}:
		return true
	default:
		return false
	}
}

func (e extraChunks) Release() { <-e.b.extra }

// Capabilities implements backends.Backend.
func (b *Backend) Capabilities() backends.Capabilities {
	return backends.Capabilities{
		AtomicReplace: true, ConditionalCreate: true, Guard: backends.GuardClaim,
		Parallelism: parallelism, PartSize: partSize,
	}
}

func (protocol) Classify(op, key string, err error) error { return classify(op, key, err) }
func (protocol) Same(a, b backends.Version) bool          { return sameVersion(a, b) }

func (p protocol) Close() error {
	p.b.pool.Close()
	return nil
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

// Stat returns the attributes of a name. It waits while this process displaces the file.
func (p protocol) Stat(ctx context.Context, name string) (fileshare.Info, error) {
	s, err := p.b.pool.get(ctx)
	if err != nil {
		return fileshare.Info{}, err
	}
	if err := p.b.enter(ctx, name); err != nil {
		return fileshare.Info{}, err
	}
	info, err := statPath(ctx, s, name)
	if err == nil && name != "" {
		p.settle(ctx, s, path.Dir(name))
	}
	return info, err
}

// statPath returns the attributes of a name. It opens the file, because only an open file reports
// its id.
func statPath(ctx context.Context, s *session, name string) (info fileshare.Info, err error) {
	err = patiently(ctx, busy, func() error {
		info, err = call(ctx, s, func(share *smb2.Share) (fileshare.Info, error) { return statShared(share, name) }, nil)
		return err
	})
	return info, err
}

func statShared(share *smb2.Share, name string) (fileshare.Info, error) {
	f, err := certain(func() (*smb2.File, error) { return share.Open(name) })
	if err != nil {
		return fileshare.Info{}, err
	}
	defer f.Close() // read-only
	return statFile(f)
}

// certain looks up a file again if the server does not find it. Samba opens a name and then reads the
// number of names of the file. If the file was replaced in between, it has none, and Samba reports
// that the name does not exist. The second lookup finds the new file.
func certain[T any](lookup func() (T, error)) (T, error) {
	found, err := lookup()
	if errors.Is(err, fs.ErrNotExist) {
		return lookup()
	}
	return found, err
}

// statFile returns the attributes of an open file. The library requests responses of 1 MiB even
// when it has fewer credits, which the server rejects with STATUS_INVALID_PARAMETER. statFile
// retries, because credits are returned when other calls end.
func statFile(f interface{ Stat() (os.FileInfo, error) }) (fileshare.Info, error) {
	for pause := time.Millisecond; ; pause *= 2 {
		info, err := f.Stat()
		if status(err) == statusInvalidParameter && pause < 2*time.Second {
			time.Sleep(pause)
			continue
		}
		if err != nil {
			return fileshare.Info{}, err
		}
		return attributes(info.(*smb2.FileStat)), nil
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

// Mkdir reports a parent that is being removed as missing.
func (p protocol) Mkdir(ctx context.Context, name string) error {
	err := p.run(ctx, func(share *smb2.Share) error { return share.Mkdir(name, 0o755) })
	return vanishing(err)
}

// vanishing adds fs.ErrNotExist to the error for a name that is being removed.
func vanishing(err error) error {
	if status(err) == statusDeletePending {
		return errors.Join(err, fs.ErrNotExist)
	}
	return err
}

// Delete lets go of the file first.
func (p protocol) Delete(ctx context.Context, key string) error {
	s, err := p.b.pool.get(ctx)
	if err != nil {
		return err
	}
	info, err := call(ctx, s, func(share *smb2.Share) (os.FileInfo, error) { return share.Stat(key) }, nil)
	if err != nil && !busy(err) {
		return err
	}
	if err == nil && info.IsDir() {
		return nil // not an object
	}
	return p.b.displace(ctx, key, busy, func() error { return p.remove(ctx, key) })
}

func (p protocol) Remove(ctx context.Context, name string) error {
	if err := p.remove(ctx, name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// remove removes a file or an empty directory.
func (p protocol) remove(ctx context.Context, name string) error {
	return p.run(ctx, func(share *smb2.Share) error { return share.Remove(name) })
}

// run runs a call that returns an error alone.
func (p protocol) run(ctx context.Context, f func(*smb2.Share) error) error {
	s, err := p.b.pool.get(ctx)
	if err != nil {
		return err
	}
	_, err = call(ctx, s, func(share *smb2.Share) (struct{}, error) { return struct{}{}, f(share) }, nil)
	return err
}
