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

// Config says what a prefetch brings where.
type Config struct {
	Store *backends.Store
	// Object, when not nil, is fetched alone: what Store.Self found, with its Store.
	// Of Listing then only MaxBytes counts.
	Object    *backends.Object
	Listing   plan.Listing
	Dir       string // made if need be; files get the names of their keys in it
	Verify    Verify
	Parallel  int        // requests at once; 0: the store's connections
	Write     disk.Write // how large files get to the disk; "": disk.WriteAuto
	Overwrite bool       // replace local files that stager did not write
	// Unpack has archives, which are told by the ends of their keys, become directories. Of
	// Listing MaxBytes then counts what comes out of them, too.
	Unpack bool
	// Sync waits until what was fetched would outlive a loss of power. Without it a
	// job may start as soon as the files are there; should the machine go down before
	// the kernel has written them, the next run fetches them again.
	Sync bool
	Log  *slog.Logger
	// Progress is called from one goroutine, five times a second and once at the
	// end, before Prefetch returns. May be nil.
	Progress func(Progress)

	free func(*disk.Dir) (int64, error) // tests have small disks
}

// Summary is what a prefetch did.
type Summary struct {
	Source       string         `json:"source"`
	Destination  string         `json:"destination"`
	Files        int            `json:"files"` // that are here now
	Bytes        int64          `json:"bytes"`
	WarmFiles    int            `json:"warmFiles"` // that were here before
	WarmBytes    int64          `json:"warmBytes"`
	FetchedFiles int            `json:"fetchedFiles"`
	FetchedBytes int64          `json:"fetchedBytes"`
	ResumedBytes int64          `json:"resumedBytes"` // of the fetched ones, that an earlier run had brought
	Verified     map[string]int `json:"verified"`     // fetched files by the checksum that held, or "size"
	// Archives are those of the files that are here as directories, and Unpacked what was in
	// them.
	Archives int             `json:"archives,omitempty"`
	Unpacked unpack.Contents `json:"unpacked,omitzero"`
	Seconds  float64         `json:"seconds"`
}

// Prefetch brings every object that cfg chooses into a directory, and returns when all
// of them are there and verified. Files that are there already are left
// alone; nothing is deleted, also when the source has lost it.
//
// Before the first file gets its name it refuses what cannot end well, and leaves
// everything as it was: kind Exist when a local file differs that no prefetch wrote, or
// that was changed since, unless Overwrite; kind Invalid when it is more than MaxBytes or
// a key is no path; kind NoSpace; a *disk.BusyError when another process
// fills the directory. A file of the object's size and time that is not known to be the one
// that a prefetch wrote is read, and compared with the store's checksum or with the
// object: when its bytes differ, and when a file has come since, the error is of kind
// Exist, too, but of what is fetched some may have its name by then. An object that changes after it was listed is an error of kind
// Changed: the next run lists anew. The first error ends it; what is complete by then
// stays and is warm for the next run, and large files are resumed.
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
	streams func() int // how many to fetch at once, now
	meter   meter
	dir     *disk.Dir
	empty   bool // the directory, but for what is stager's: nothing need be looked for
	record  *record
	todo    *spool // what must be fetched
	head    *listingOverlap
	unpacks *semaphore.Weighted // memory of the archives that are being unpacked
	out     atomic.Int64        // bytes that are here in the end, as far as is known

	mu      sync.Mutex // guards all below while workers run
	summary Summary
}

func (p *run) run(ctx context.Context) (err error) {
	if err := p.cfg.Verify.check(); err != nil {
		return err
	}
	host, _ := os.Hostname() // words for a person
	made := notThere(filepath.Clean(p.cfg.Dir))
	fresh := len(notThere(filepath.Join(p.cfg.Dir, disk.Private))) > 0
	p.dir, err = disk.Open(p.cfg.Dir, fmt.Sprintf("stager prefetch of %s, process %d on %s", p.summary.Source, os.Getpid(), host))
	var busy *disk.BusyError
	if errors.As(err, &busy) {
		return err
	}
	if err != nil {
		return local("the destination", err)
	}
	defer p.dir.Close() // what it holds is synced, or said not to be
	defer func() {
		if err != nil && fresh {
			p.clear(made)
		}
	}()
	if err := p.dir.SetWrite(p.cfg.Write, p.cfg.Sync, func(err error) {
		p.log.Debug("the file system takes no direct writes, large files go through the page cache", "error", err)
	}); err != nil {
		return local("the destination", err)
	}
	if p.empty, err = p.dir.Empty(); err != nil {
		return local("the destination", err)
	}
	if p.record, err = openRecord(p.dir, p.summary.Source); err != nil {
		return local("the record of earlier runs", err)
	}
	defer p.record.close() // the same
	if p.todo, err = newSpool(p.dir); err != nil {
		return local("the list of objects", err)
	}
	defer p.todo.close() // it has no name

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
			err = local("the record of this run", err)
		}
	}
	if err != nil {
		stop()
		<-fetched //nolint:errcheck // it tells of nothing else
		p.undo()
		return err
	}
	p.meter.phase.Store(Fetching)
	if err = p.pass(); err != nil {
		stop()
		<-fetched //nolint:errcheck // the same
	} else {
		err = <-fetched
	}
	// A run that fetches nothing has time to make durable what an earlier one brought.
	if ctx.Err() == nil && (p.cfg.Sync || found.files == 0) {
		err = errors.Join(err, p.settle())
	}
	if err == nil {
		p.meter.phase.Store(Done)
	}
	if direct, cached, changes := p.dir.Ways(); direct+cached > 0 {
		p.log.Debug("large files written", "direct_bytes", direct, "cached_bytes", cached, "changes", changes)
	}
	return err
}

// settle makes the files durable and notes it.
func (p *run) settle() error {
	if !p.record.pending {
		return nil
	}
	p.meter.phase.Store(Syncing)
	if err := p.dir.Sync(); err != nil {
		return local("the destination", err)
	}
	if err := p.record.synced(); err != nil {
		return local("the record of this run", err)
	}
	return nil
}
