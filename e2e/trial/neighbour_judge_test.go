package trial

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// afterwards has everything done once more, with the neighbour gone: what is reported as
// done must be right.
func (h *house) afterwards(t *testing.T) {
	t.Helper()
	const last = 1_000_000
	h.epochs = 0
	h.letGo()
	h.startStager(t)
	ctx, cancel := context.WithTimeout(t.Context(), h.patience)
	defer cancel()
	work, reading := sync.WaitGroup{}, make(chan struct{})
	work.Go(func() {
		h.reader(ctx, "after")
		close(reading)
	})
	wrote := h.writeStep(last)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for over := false; !over; {
		select {
		case <-h.stager.done:
			over = true
		case <-reading:
			over = true
		case <-tick.C:
			h.mu.Lock()
			over = h.epochs > 1 // of which one was whole
			h.mu.Unlock()
		}
	}
	cancel()
	work.Wait()
	code := h.endStager(t)
	safe := strings.Contains(h.said(h.started), fmt.Sprintf(`msg="a checkpoint is safe" output=ckpt step=%d `, last))
	saved := wrote == nil && (safe || code == 0)
	t.Logf("afterwards: %d ends of epochs, exit %d, the last step was written: %v, reported as safe: %t", h.epochs, code, wrote, safe)
	if h.epochs < 2 && !strings.Contains(h.said(h.started), "stager did not create this file") { // which it leaves
		t.Errorf("hung: no epoch was delivered within %v when the neighbour had gone", h.patience)
	}

	for dir, args := range map[string][]string{
		"vol/model": {"prefetch", h.url("src")}, "new/model": {"prefetch", h.url("src")},
		"vol/back": {"restore", h.url("store")}, "new/back": {"restore", h.url("store")},
	} {
		to := filepath.Join(h.dir, dir)
		code := h.within(t, h.start(t, h.command(stagerUser, h.binary, append(args, to)...)), args[0])
		t.Logf("afterwards: %s to %s: exit %d", args[0], dir, code)
		switch {
		case code != 0 && strings.HasPrefix(dir, "new"):
			t.Errorf("%s to a directory that nobody disturbs: exit %d, want 0", args[0], code)
		case code != 0:
		case args[0] == "prefetch":
			h.prefetched(to)
		default:
			h.restored(to, saved, last)
		}
	}
}

var shardPlace = regexp.MustCompile(`^e\d{4}-\d{8}-noise-`)

// letGo removes the shards that the neighbour took out of their places, as a reader does with
// those that it has read: until then a window waits for it, and no epoch ends. It removes
// what has a shard's place in ready/ and is no file of the neighbour's, which stager says to
// do and never does by itself. Errors do not matter: both others are at work.
func (h *house) letGo() {
	win := filepath.Join(h.dir, "vol", "win")
	places := make(map[uint64]string) // names of shards by inode
	printed, _ := os.ReadDir(filepath.Join(win, "ready"))
	held, _ := os.ReadDir(filepath.Join(win, ".stager", "held")) // later: what is shown is held before
	for _, d := range held {
		var st unix.Stat_t
		if unix.Lstat(filepath.Join(win, ".stager", "held", d.Name()), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			places[st.Ino] = d.Name()
		}
	}
	for _, d := range printed {
		var st unix.Stat_t
		p := filepath.Join(win, "ready", d.Name())
		if shardPlace.MatchString(d.Name()) && unix.Lstat(p, &st) == nil && places[st.Ino] != d.Name() && !isForeign(p) {
			_ = os.Remove(p)
		}
	}
	_ = filepath.WalkDir(filepath.Join(h.dir, "vol"), func(p string, d fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err != nil || unix.Lstat(p, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink < 2 {
			return nil
		}
		name, shard := places[st.Ino]
		if shard && p != filepath.Join(win, ".stager", "held", name) && p != filepath.Join(win, "ready", name) {
			_ = os.Remove(p)
		}
		return nil
	})
}

// isForeign reports whether a file is one that the neighbour made.
func isForeign(p string) bool {
	file, err := os.OpenFile(p, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer file.Close() // opened for reading
	start := make([]byte, len(foreign))
	n, _ := file.ReadAt(start, 0)
	return n == 0 || string(start[:n]) == foreign // it may be about to write
}

// prefetched checks what a prefetch reported as done.
func (h *house) prefetched(to string) {
	for name, want := range h.shards {
		if got, err := h.digest(filepath.Join(to, name)); err != nil || got != want {
			h.wrong = append(h.wrong, fmt.Sprintf("wrong bytes: prefetch succeeded, and %s is %s (%v), want %s", name, got, err, want))
		}
	}
}

// restored checks what a restore reported as done, where it is the last step.
func (h *house) restored(to string, mustBeLast bool, last int) {
	var r restored
	text, err := os.ReadFile(filepath.Join(to, "RESTORED.json"))
	if err = errors.Join(err, json.Unmarshal(text, &r)); err != nil || mustBeLast && r.Step != last {
		h.wrong = append(h.wrong, fmt.Sprintf("wrong step: restore succeeded with step %d (%v), want %d", r.Step, err, last))
		return
	}
	if r.Step != last {
		return // the neighbour may have changed it before it was saved
	}
	for _, name := range []string{"model.pt", "optim.pt"} {
		sum := sha256.Sum256(h.stepFile(last, name))
		if got, err := h.digest(filepath.Join(to, name)); err != nil || got != hex.EncodeToString(sum[:]) {
			h.wrong = append(h.wrong, fmt.Sprintf("wrong bytes: restore succeeded, and %s is %s (%v)", name, got, err))
		}
	}
}

// digest is that of a plain file, not of what a link leads to.
func (h *house) digest(p string) (string, error) {
	file, err := os.OpenFile(p, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer file.Close() // opened for reading
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", errors.Join(err, errors.New("it is not a plain file"))
	}
	sum := sha256.New()
	_, err = io.Copy(sum, file)
	return hex.EncodeToString(sum.Sum(nil)), err
}

// judge looks at what all of them left.
func (h *house) judge(t *testing.T) {
	t.Helper()
	for _, wrong := range h.wrong {
		t.Error(wrong)
	}
	for p, own := range h.ledger.Files {
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			t.Errorf("foreign: %s is gone: %v", p, err)
		} else if got, err := h.digest(p); err != nil || got != own.SHA256 || st.Ino != own.Inode {
			t.Errorf("foreign: %s was changed or replaced: inode %d, %s (%v), want %d, %s", p, st.Ino, got, err, own.Inode, own.SHA256)
		}
	}
	want := bytes.Repeat(append(bytes.Clone(h.token), '\n'), 64)
	if got, err := os.ReadFile(h.secret); err != nil || !bytes.Equal(got, want) {
		t.Errorf("secret: it has %d bytes (%v), want the %d that it had", len(got), err, len(want))
	}
	if beside, err := os.ReadDir(filepath.Dir(h.secret)); err != nil || len(beside) != 1 {
		t.Errorf("secret: its directory has %v (%v), want one file", beside, err)
	}
	for _, dir := range []string{"vol", "store"} {
		err := filepath.WalkDir(filepath.Join(h.dir, dir), func(p string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			if text, err := os.ReadFile(p); err != nil || bytes.Contains(text, h.token) {
				t.Errorf("secret: %s has it (%v)", p, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	if t.Failed() {
		log, _ := os.ReadFile(h.log.Name())
		run := h.said(0)
		t.Logf("the last that stager logged:\n%s\nand its other commands:\n%s", run[max(0, len(run)-6000):], log[max(0, len(log)-3000):])
	}
}
