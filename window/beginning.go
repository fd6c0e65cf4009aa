package window

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/stager-dev/stager/window/disk"
)

// While a large source is still being listed, a window can deliver the first items of the list: it is
// opened with Config.Beginning, no epoch of it ends, and Continue gives it the whole plan, of which its
// items are the first positions.
//
// Positions of the beginning mean the same in the whole plan, so that state of the one is state of the
// other. The stamp in the directory names the plan that the state is of. Continue writes the name of the
// whole plan there before any position is used that the beginning does not have: the state of such
// positions is never taken for that of another plan with the same beginning. The journal may name the
// beginning for longer, until it is compacted.

// stampName is the file that names the plan and the boot of the machine that the state is of.
const stampName = disk.Private + "/plan"

// stampOf returns the content of the stamp.
func stampOf(plan string) []byte { return fmt.Appendf(nil, "%q\n%s\n", plan, disk.Boot()) }

// ErrOtherState is returned by New for the beginning of a plan if the directory has state of another plan.
// Only the whole plan may drop it: it may be state of the whole plan.
var ErrOtherState = errors.New("the directory has the state of another plan")

// parseStamp returns the name of the plan in a stamp, and whether it is of this boot of the machine.
func parseStamp(text []byte) (plan string, sameBoot, ok bool) {
	quoted, rest, _ := strings.Cut(string(text), "\n")
	plan, err := strconv.Unquote(quoted)
	return plan, rest == disk.Boot()+"\n", err == nil
}

// PlanIn returns the Manifest of the plan whose state is in a directory; "" if there is no state. It
// reports false if there is state, and its plan cannot be told. It does not lock the directory.
func PlanIn(dir string) (manifest string, known bool) {
	root, err := disk.OpenRoot(dir)
	if err != nil {
		return "", errors.Is(err, fs.ErrNotExist)
	}
	defer root.Close() // opened for reading
	return planIn(root)
}

// planIn is PlanIn for an open directory.
func planIn(root *os.Root) (manifest string, known bool) {
	text, err := disk.ReadSmall(root, stampName, disk.Limit)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = root.Lstat(journalName)
		return "", errors.Is(err, fs.ErrNotExist)
	}
	plan, _, ok := parseStamp(text)
	if err != nil || !ok {
		return "", false
	}
	manifest, _, _ = strings.Cut(plan, " ")
	return manifest, manifest != ""
}

// planName identifies the plan that the state in the directory belongs to.
func (c *Config) planName() string { return strings.TrimSpace(c.Manifest + " " + c.Part) }

// Includes reports whether a plan with that Manifest is the window's own, or a beginning of it.
func (w *Window) Includes(manifest string) bool {
	c := w.config()
	return manifest == c.Manifest || c.begins(manifest) > 0
}

// begins is Begins, if there is one.
func (c *Config) begins(manifest string) int {
	if c.Begins == nil {
		return 0
	}
	return c.Begins(manifest)
}

// continues reports whether state of a plan with that name is state of this one.
func (c *Config) continues(name string) bool {
	if name == c.planName() {
		return true
	}
	manifest, same := strings.CutSuffix(name, strings.TrimSuffix(" "+c.Part, " "))
	return same && c.begins(manifest) > 0
}

// config returns the configuration, of which Continue replaces a part.
func (w *Window) config() Config {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cfg
}

// Beginning reports whether the window has only the beginning of its plan. Once false, it stays false.
func (w *Window) Beginning() bool { return w.config().Beginning }

// Ended returns the error that Lease returns since Run has ended; nil before.
func (w *Window) Ended() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.life.ended
}

// Fail ends Run with an error, which readers receive, too.
func (w *Window) Fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.life.fail(err)
	w.note()
}

// Continue gives a window that began with Config.Beginning the whole plan: the configuration with which
// New would open it. It returns nil once the window works with it; until then it tries again if the disk
// is full. An error of the plan, such as a *BudgetError, also ends Run.
func (w *Window) Continue(ctx context.Context, whole Config) error {
	epoch, order, err := w.wholeOrder(&whole)
	if err != nil {
		w.Fail(err)
		return err
	}
	for {
		if err := w.renameState(whole.planName()); err == nil {
			break
		} else if err = w.renameFailed(err); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lookEvery):
		}
	}
	return w.continueWith(&whole, epoch, order)
}

// wholeOrder checks the whole plan, and returns its order of the current epoch, which does not end
// before continueWith.
func (w *Window) wholeOrder(whole *Config) (epoch int, order Order, err error) {
	if err := whole.defaults(); err != nil {
		return 0, nil, err
	}
	w.mu.Lock()
	begun, epoch, known := w.cfg.planName(), w.progress.low.epoch, w.progress.order(w.progress.low.epoch)
	w.mu.Unlock()
	order = whole.Order(epoch)
	begins := whole.continues(begun) && order.Len() >= known.Len()
	for pos := 0; begins && pos < known.Len(); pos++ {
		item := known.At(pos)
		begins = item == others || item == order.At(pos)
	}
	if !begins {
		return 0, nil, fmt.Errorf("input %s: the plan %.20s is not the beginning of the plan %.20s", w.cfg.Input, begun, whole.planName())
	}
	return epoch, order, nil
}

// renameState records that the state in the directory is that of another plan.
func (w *Window) renameState(plan string) error {
	return disk.ReplaceSmall(w.stage.Root(), stampName, stampOf(plan), 0o644, w.durable())
}

// renameFailed records a failure of renameState. It returns an error if there is no point in another attempt.
func (w *Window) renameFailed(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.life.closed {
		return ErrClosed
	}
	w.troubleLocked("cannot record that the source is listed, trying again", err)
	return nil
}

// continueWith replaces the plan. The state in the directory has its name.
func (w *Window) continueWith(whole *Config, epoch int, order Order) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.life.closed {
		return ErrClosed
	}
	c := &w.cfg
	c.Items, c.Extent, c.Order, c.Fetcher = whole.Items, whole.Extent, whole.Order, whole.Fetcher
	c.Manifest, c.Begins, c.Scratch, c.Beginning = whole.Manifest, whole.Begins, whole.Scratch, false
	w.items.listed = whole.Items
	w.progress.growing = false
	w.orderedLocked(epoch, order)
	w.journal.stale = true
	w.space.ownAt = time.Time{} // Scratch is another one
	w.note()
	return w.life.failed
}

// awaitsListLocked reports whether nothing is left of the beginning of a plan that could be fetched.
func (w *Window) awaitsListLocked() bool { return w.cfg.Beginning && w.progress.exhausted() }
