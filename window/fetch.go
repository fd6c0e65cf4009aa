package window

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/window/disk"
)

const (
	triesOfCorrupt = 3
	firstPause     = 100 * time.Millisecond
	longestPause   = 30 * time.Second
)

// The kinds of fetch failures.
const (
	failCorrupt = "corrupt"
	failGone    = "gone"
	failDisk    = "disk"
	failOther   = "other"
)

func failKind(err error) string {
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return failDisk
	case errors.Is(err, ErrCorrupt):
		return failCorrupt
	case errors.Is(err, ErrGone):
		return failGone
	}
	return failOther
}

// fetch fetches one file and records the result.
func (w *Window) fetch(ctx context.Context, e *entry) {
	digest, err := w.fetchEntry(ctx, e)
	w.mu.Lock()
	w.fetchedResultLocked(time.Now(), e, digest, err, ctx.Err() != nil)
	w.mu.Unlock()
	w.note()
}

func (w *Window) fetchEntry(ctx context.Context, e *entry) (digest string, err error) {
	var took room
	began := time.Now()
	f := e.fetching
	item := f.of
	in, err := w.open(e, item)
	w.mu.Lock()
	f.at = began
	if err == nil {
		f.in = in.began
	}
	w.space.allocate(e, err == nil && !item.Tree)
	w.mu.Unlock()
	if err != nil {
		return "", err
	}

	digest, err = in.fetch(ctx)
	if err == nil {
		w.mu.Lock()
		w.moveLocked(e, Verifying, "received all bytes")
		w.mu.Unlock()
		took, err = in.verify(digest)
	}
	var mark disk.Mark
	if err == nil {
		mark, err = in.land()
	}
	switch {
	case err == nil:
		w.mu.Lock()
		e.mark = mark
		w.space.allocate(e, true)
		if item.UpTo {
			w.space.resize(e, took.files, item.Beside+w.dirs(took.dirs))
		}
		w.mu.Unlock()
		return digest, nil
	case failKind(err) == failOther:
		return "", errors.Join(err, in.close()) // the next attempt resumes from the received bytes
	default:
		err = errors.Join(err, in.discard())
		w.mu.Lock()
		w.space.allocate(e, false)
		w.mu.Unlock()
		return "", err
	}
}

// transfer is the set of operations on a file or a tree that is fetched.
type transfer struct {
	began          interface{ Began() (time.Time, bool) } // time of the first byte, or file
	fetch          func(context.Context) (digest string, err error)
	verify         func(digest string) (room, error)
	land           func() (disk.Mark, error)
	close, discard func() error
}

func (w *Window) open(e *entry, item Item) (transfer, error) {
	fetcher := w.config().Fetcher
	if item.Tree {
		in, err := w.stage.IncomingTree(e.name, item.Version)
		return transfer{
			began: in,
			fetch: func(ctx context.Context) (string, error) {
				return "", fetcher.(TreeFetcher).FetchTree(ctx, e.item, in)
			},
			verify: func(string) (room, error) { return verifyTree(item, in) },
			land:   func() (disk.Mark, error) { return w.stage.landTree(in, e.name) },
			close:  func() error { return nil }, discard: in.Discard,
		}, err
	}
	in, err := w.stage.Incoming(e.name, item.Size, item.Version)
	return transfer{
		began:  in,
		fetch:  func(ctx context.Context) (string, error) { return fetcher.Fetch(ctx, e.item, in) },
		verify: func(digest string) (room, error) { return room{files: item.Size}, verify(item, in, digest) },
		land:   func() (disk.Mark, error) { return w.stage.land(in, e.name) },
		close:  in.Close, discard: in.Discard,
	}, err
}

// room is the space of an item's files, and of the directories of a tree except its own, in bytes.
type room struct{ files, dirs int64 }

// verifyTree checks what the window can check about a tree. A tree of another size would break the
// budget, and would not be recognized after a restart.
func verifyTree(item Item, in *disk.IncomingTree) (room, error) {
	st, err := in.Stat()
	if err == nil && st.Room != item.Size && !(item.UpTo && st.Room < item.Size) {
		err = fmt.Errorf("%w: the files of %s use %d bytes, want %d", ErrCorrupt, item.Name, st.Room, item.Size)
	}
	return room{st.Room, dirsOf(st)}, err
}

// verify checks what the window can check about a file, after its Fetcher has verified it.
func verify(item Item, in *disk.Incoming, digest string) error {
	if missing := in.Missing(); len(missing) > 0 {
		return fmt.Errorf("%s: byte %d of %d is missing", item.Name, missing[0].Off, item.Size)
	}
	want, _, _ := strings.Cut(item.Digest, ":")
	got, _, _ := strings.Cut(digest, ":")
	if item.Digest != "" && want == got && digest != item.Digest {
		return fmt.Errorf("%w: %s has %s, want %s", ErrCorrupt, item.Name, digest, item.Digest)
	}
	return nil
}

// fetchedResultLocked records the result of a fetch.
func (w *Window) fetchedResultLocked(now time.Time, e *entry, digest string, err error, canceled bool) {
	w.fetches.ended(e)
	if !canceled {
		w.waiting.starving.fetched(now, e, err == nil)
	}
	f := e.fetching
	f.in = nil
	if err == nil {
		e.fetched(digest)
		w.diskPause.fetched()
		w.moveLocked(e, Ready, "fetched")
		w.verifiedLocked(e)
		return
	}
	if canceled {
		w.requeueLocked(e, now, "canceled")
		return
	}
	kind := failKind(err)
	w.metrics.fetchFailures.WithLabelValues(kind).Inc()
	w.troubleLocked("cannot fetch "+f.of.Name, err)
	switch kind {
	case failDisk:
		// The disk is at fault, not this file.
		w.diskPause.full(now)
		w.relieveLocked("disk full")
		w.requeueLocked(e, now, "disk full")
		return
	case failCorrupt:
		if f.corrupt++; f.corrupt < triesOfCorrupt {
			break
		}
		fallthrough
	case failGone:
		if w.life.unconfirmed { // the source may have changed, and then this is not of its plan
			break
		}
		reason := fmt.Sprintf("%v", err)
		if kind == failCorrupt {
			reason = fmt.Sprintf("fetched %d times: %v", f.corrupt, err)
		}
		w.space.discard(e)
		w.quarantineLocked(e, reason, err)
		return
	}
	w.requeueLocked(e, now.Add(pause(f.tries)), kind)
	f.tries++
}

// verifiedLocked adds a verified file in whole/.
func (w *Window) verifiedLocked(e *entry) {
	w.landLocked(e)
	verified := w.stagedLocked(e)
	if err := w.journal.add("sum", e.seq, verified.digest, verified.mark.Inode, verified.mark.Time); err != nil {
		w.troubleLocked("cannot write the journal", err) // after a restart the file is fetched again
	}
}

// stagedLocked returns the journal's data about a file that is in whole/ or published.
func (w *Window) stagedLocked(e *entry) staged {
	if e.summed {
		return staged{"", e.mark}
	}
	return staged{e.digest, e.mark}
}

// requeueLocked schedules another attempt.
func (w *Window) requeueLocked(e *entry, notBefore time.Time, why string) {
	e.fetching.notBefore = notBefore
	w.moveLocked(e, Reserved, why)
	w.fetches.add(e)
}

// pause returns the back-off after a number of failures.
func pause(tries int) time.Duration {
	return min(firstPause<<min(tries, 20), longestPause)
}
