package download

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/stager/unpack"
	"github.com/stager-dev/stager/window/disk"
)

// Config configures a prefetch.
type Config struct {
	Store *backends.Store
	// Object, if not nil, is the only object to fetch, as returned by Store.Self with its Store. Of
	// Listing only MaxBytes then applies.
	Object    *backends.Object
	Listing   plan.Listing
	Dir       string // created if missing; the files in it have the names of their keys
	Verify    Verify
	Parallel  int        // concurrent requests; 0: the store's connections
	Write     disk.Write // how large files are written; "": disk.WriteAuto
	Overwrite bool       // replace local files that stager did not write
	// Unpack makes archives, recognised by the suffixes of their keys, directories.
	// Listing.MaxBytes then also limits the size of their contents.
	Unpack bool
	// Sync waits until the fetched files would survive a power failure. Without it a job can start
	// as soon as the files exist. If the machine then fails before the kernel has written them, the
	// next run fetches them again.
	Sync bool
	// Finish, if not nil, is called once all files are present, while no other prefetch can fill the
	// directory.
	Finish func(*disk.Dir) error
	Log    *slog.Logger
	// Progress is called from one goroutine, five times a second and once at the end, before
	// Prefetch returns. May be nil.
	Progress func(Progress)

	free    func(*disk.Dir) (int64, error) // replaced by tests that need a small disk
	oneName func(*disk.Dir) bool           // replaced by tests that need a disk that ignores case
}

// Summary is the result of a prefetch.
type Summary struct {
	Source       string         `json:"source"`
	Destination  string         `json:"destination"`
	Files        int            `json:"files"` // present now
	Bytes        int64          `json:"bytes"`
	WarmFiles    int            `json:"warmFiles"` // present before
	WarmBytes    int64          `json:"warmBytes"`
	FetchedFiles int            `json:"fetchedFiles"`
	FetchedBytes int64          `json:"fetchedBytes"`
	ResumedBytes int64          `json:"resumedBytes"` // bytes of fetched files that an earlier run had fetched
	Verified     map[string]int `json:"verified"`     // number of fetched files by the checksum that matched, or "size"
	// Archives is the number of files that are present as directories, and Unpacked describes their
	// contents.
	Archives int             `json:"archives,omitempty"`
	Unpacked unpack.Contents `json:"unpacked,omitzero"`
	Seconds  float64         `json:"seconds"`
}

// Prefetch fetches every object that cfg selects into a directory, and returns when all of them are
// present and verified. Files that are already present are left alone. It deletes nothing, even if
// the source has lost it.
//
// Before it publishes the first file it refuses what cannot succeed, and leaves everything
// unchanged. The error has kind Exist if a local file differs that no prefetch wrote, or that was
// changed since, unless Overwrite is set; kind Invalid if the source exceeds MaxBytes or a key is
// not a valid path; and kind NoSpace if the disk is too small. It is a *disk.BusyError if another
// process fills the directory.
//
// A file with the object's size, and its time if the store has one, that no prefetch is known to have written is read and
// compared with the store's checksum or with the object. If its bytes differ, or if a file appeared
// meanwhile, the error also has kind Exist, but some fetched files may be published by then. An
// object that changes after it was listed is an error of kind Changed: the next run lists again.
// The first error ends the prefetch. Complete files stay and need not be fetched by the next run,
// and large files are resumed.
func Prefetch(ctx context.Context, cfg Config) (Summary, error) {
	start := time.Now()
	p := &run{
		cfg: cfg, log: cfg.Log, start: start, streams: cfg.Store.Connections, unpacks: semaphore.NewWeighted(unpackMemory),
		summary: Summary{Source: cfg.Store.Name(), Destination: cfg.Dir, Verified: make(map[string]int)},
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	if cfg.Parallel > 0 {
		p.streams = func() int { return cfg.Parallel }
	}
	if p.cfg.free == nil {
		p.cfg.free = (*disk.Dir).Free
	}
	if p.cfg.oneName == nil {
		p.cfg.oneName = (*disk.Dir).OneName
	}
	stop := p.meter.start(cfg.Progress)
	err := p.run(ctx)
	stop()
	p.summary.Seconds = time.Since(start).Seconds()
	return p.summary, err
}

// run is one prefetch under way.
type run struct {
	cfg     Config
	log     *slog.Logger
	start   time.Time
	streams func() int // current number of concurrent requests
	meter   meter
	dir     *disk.Dir
	empty   bool // the directory has only stager's own files, so no file need be compared
	record  *record
	todo    *spool // objects to fetch
	head    *listingOverlap
	unpacks *semaphore.Weighted // memory for the archives that are being unpacked
	out     atomic.Int64        // bytes of the final contents, as far as known

	mu      sync.Mutex // guards all below while workers run
	summary Summary
}

func (p *run) run(ctx context.Context) (err error) {
	if err := p.cfg.Verify.check(); err != nil {
		return err
	}
	host, _ := os.Hostname() // only for messages
	made := notThere(filepath.Clean(p.cfg.Dir))
	first := len(notThere(filepath.Join(p.cfg.Dir, disk.Private))) > 0
	p.dir, err = disk.Open(p.cfg.Dir, fmt.Sprintf("stager prefetch of %s, process %d on %s", p.summary.Source, os.Getpid(), host))
	var busy *disk.BusyError
	if errors.As(err, &busy) {
		return err
	}
	if err != nil {
		return local("the destination", err)
	}
	defer p.dir.Close() // its contents are synced, or reported as not synced
	defer func() {
		if err != nil {
			p.fail(made, first)
		}
	}()
	if err := p.dir.SetWrite(p.cfg.Write, p.cfg.Sync, func(err error) {
		p.log.Debug("file system does not support direct writes, using the page cache", "error", err)
	}); err != nil {
		return local("the destination", err)
	}
	if p.empty, err = p.dir.Empty(); err != nil {
		return local("the destination", err)
	}
	if p.record, err = openRecord(p.dir, p.summary.Source); err != nil {
		return local("the record of earlier runs in "+disk.Private, err)
	}
	defer p.record.close() // likewise
	if p.todo, err = newSpool(p.dir); err != nil {
		return local("the list of objects", err)
	}
	defer p.todo.close() // the spool has no name

	left, err := p.dir.Orphans()
	if err != nil {
		return local("the destination", err)
	}
	free, err := p.cfg.free(p.dir)
	if err != nil {
		return local("the destination", err)
	}
	p.head = newListingOverlap(free, !left.None())
	p.meter.phase.Store(Listing)
	working, stop := context.WithCancel(ctx)
	defer stop()
	fetched := make(chan error, 1)
	go func() { fetched <- p.fetchAll(working) }()
	found, err := p.list(ctx, left)
	if err == nil && (found.files+found.unknown > 0 || p.record.pending) {
		if err = p.record.begin(); err != nil {
			err = local("the record of this run in "+disk.Private, err)
		}
	}
	if err != nil {
		stop()
		<-fetched //nolint:errcheck // its only result is already known
		p.undo()
		return err
	}
	p.meter.phase.Store(Fetching)
	if err = p.pass(); err != nil {
		stop()
		<-fetched //nolint:errcheck // likewise
	} else {
		err = <-fetched
	}
	if err == nil && p.cfg.Finish != nil {
		err = p.cfg.Finish(p.dir)
	}
	// A run that fetches nothing has time to sync what an earlier run fetched.
	if ctx.Err() == nil && (p.cfg.Sync || found.files == 0) {
		err = errors.Join(err, p.syncAll())
	}
	if err == nil {
		p.meter.phase.Store(Done)
	}
	if direct, cached, changes := p.dir.Ways(); direct+cached > 0 {
		p.log.Debug("large files written", "direct_bytes", direct, "cached_bytes", cached, "changes", changes)
	}
	return err
}

// settle syncs the files and records it.
func (p *run) syncAll() error {
	if !p.record.pending {
		return nil
	}
	p.meter.phase.Store(Syncing)
	if err := p.dir.Sync(); err != nil {
		return local("the destination", err)
	}
	if err := p.record.synced(); err != nil {
		return local("the record of this run in "+disk.Private, err)
	}
	return nil
}
