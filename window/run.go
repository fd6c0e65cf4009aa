package window

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Run fills the window until all epochs are delivered and acknowledged (with ReleaseNever: until
// all files are there), and then returns nil. It returns a *BadItemError if an epoch failed, and
// the context's error once that is done. When Run returns, all its goroutines have ended. Leases
// can be acknowledged until Close. Call Run once.
func (w *Window) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	gone := make(chan struct{})
	defer close(gone)
	w.mu.Lock()
	again := w.life.stop != nil || w.life.closed
	if !again {
		w.life.stop = func() { cancel(); <-gone }
	}
	w.mu.Unlock()
	if again {
		return fmt.Errorf("input %s: Run must be called once, before Close", w.cfg.Input)
	}

	var goroutines sync.WaitGroup
	w.spawn, w.flush = goroutines.Go, goroutines.Go
	if w.watch {
		stop := w.listen()
		defer stop()
	}
	err := w.loop(ctx)
	cancel()
	goroutines.Wait()

	w.mu.Lock()
	defer w.mu.Unlock()
	end := err
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		end = ErrClosed
	}
	w.serveLocked(time.Now())
	w.endLocked(end)
	return err
}

// loop plans and acts until there is nothing more to do.
func (w *Window) loop(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		w.measure(time.Now())
		w.mu.Lock()
		t := w.plan(time.Now())
		failed := w.life.failed
		w.mu.Unlock()
		w.act(ctx, t)
		switch {
		case failed != nil:
			return failed
		case t.done:
			return nil
		case ctx.Err() != nil:
			return w.endedBy(ctx)
		case t.work():
			continue
		}
		timer.Reset(t.sleep)
		select {
		case <-ctx.Done():
		case <-w.wake:
		case <-timer.C:
		}
	}
}

// endedBy returns the error with which Run ends once its context is done. The error of an epoch
// that failed during the last plan has precedence, because readers have seen it.
func (w *Window) endedBy(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.life.failed != nil {
		return w.life.failed
	}
	return ctx.Err()
}

// act does the planned work. Only fetches and orders run in their own goroutines.
func (w *Window) act(ctx context.Context, t todo) {
	for _, e := range t.fetch {
		w.spawn(func() { w.fetch(ctx, e) })
	}
	if t.order >= 0 {
		w.spawn(func() { w.loadOrder(t.order) })
	}
	if t.more >= 0 {
		w.spawn(func() { w.askMore(ctx, t.more) })
	}
	for _, e := range t.show {
		ino, err := w.stage.show(e.name, e.mark)
		if errors.Is(err, ErrLost) {
			// Now, not with the other removals: the file that is fetched next has the same name.
			_, derr := w.stage.discard(e.name)
			err = errors.Join(err, derr)
		}
		w.mu.Lock()
		w.publishedLocked(time.Now(), e, ino, err)
		w.mu.Unlock()
	}
	for _, epoch := range t.ends {
		err := errors.Join(w.stage.markEnd(epoch), w.stage.unmarkEnd(epoch-keepEnds))
		if err != nil {
			w.mu.Lock()
			w.troubleLocked("cannot mark the end of an epoch", err)
			w.ends.retry(time.Now(), epoch)
			w.mu.Unlock()
		}
	}
	for _, e := range t.remove {
		w.remove(e)
	}
	if t.scan {
		w.scan()
	}
	if t.compact {
		w.compact()
	}
	if t.sync {
		w.flush(w.syncJournal)
	}
	w.mu.Lock()
	w.removals.checked(time.Now())
	w.mu.Unlock()
}

// remove removes a file, wherever a reader moved it.
func (w *Window) remove(e *entry) {
	w.mu.Lock()
	name, ino, at, acked, visible := e.name, e.ino, e.place(), !e.planned, e.published
	dropped := e.planned && e.leaving && e.item != orphan
	next := e.carryOver
	w.mu.Unlock()

	if next != nil {
		ok, err := w.stage.reuse(name, ino, at, next)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.reusedLocked(e, ok, err)
		return
	}
	var gone, taken bool
	var err error
	if !visible {
		if ino, err = w.stage.discard(name); ino == 0 {
			gone = true
		}
	} else if dropped {
		taken, err = w.stage.unshow(name, ino)
	}
	if visible && !taken && err == nil {
		gone, err = w.stage.remove(name, ino, at, acked)
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	if !visible && ino != 0 {
		e.published, e.ino = true, ino // it was retained from an epoch whose reader still has it open
	}
	if taken && err == nil && !w.entries.has(e.seq) {
		w.undropLocked(e)
		return
	}
	w.removedLocked(e, gone && err == nil, err)
}

// publishedLocked records the result of publishing a file.
func (w *Window) publishedLocked(now time.Time, e *entry, ino uint64, err error) {
	w.publishing.ended(e)
	if errors.Is(err, ErrLost) {
		w.log.Warn("another program removed or changed a shard's file, fetching it again", "file", e.name, "error", err)
		w.moveLocked(e, Zombie, "its file in .stager/whole was removed or changed")
		w.entries.forget(e)
		w.progress.planAgain(e.seq)
		w.goneLocked(e, Freed, "file lost")
		w.note()
		return
	}
	if err != nil {
		w.troubleLocked("cannot publish a shard's file", err)
		w.publishing.retry(now, e)
		return
	}
	e.published, e.ino = true, ino
	w.offerLocked(e)
	w.readyLocked()
	w.serveLocked(now)
}

// listen watches the directories with inotify. Events are hints: the next scan finds what they
// miss.
func (w *Window) listen() (stop func()) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		w.log.Info("inotify unavailable, polling the directories", "err", err)
		return func() {}
	}
	for _, dir := range []string{"ready", "done"} {
		if err := watcher.Add(filepath.Join(w.dir, dir)); err != nil {
			w.log.Info("cannot watch a directory with inotify, polling it", "dir", dir, "err", err)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case event, open := <-watcher.Events:
				if !open {
					return
				}
				w.heard(event)
			case _, open := <-watcher.Errors:
				if !open {
					return
				}
			}
		}
	}()
	return func() {
		watcher.Close() //nolint:errcheck // not used any more
		<-done
	}
}

// heard handles an inotify event. It ignores events that no reader caused.
func (w *Window) heard(event fsnotify.Event) {
	done := filepath.Base(filepath.Dir(event.Name)) == "done"
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.entries.named(filepath.Base(event.Name))
	if w.life.closed || e == nil || !e.published || e.state != Ready && e.state != Leased {
		return
	}
	switch {
	case !done && event.Has(fsnotify.Remove):
		w.findLocked(time.Now(), e, nil)
	case !done && event.Has(fsnotify.Rename), done && event.Has(fsnotify.Create):
		w.scans.request()
	default:
		return
	}
	w.note()
}
