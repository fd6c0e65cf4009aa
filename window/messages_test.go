package window

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// logOf runs a window whose log is recorded: before acts on the directory before the window opens,
// after on the open window, which is then at rest.
func logOf(t *testing.T, cfg Config, before func(dir string), after func(*bench)) string {
	t.Helper()
	var said bytes.Buffer
	cfg.Dir, cfg.Log = t.TempDir(), slog.New(slog.NewTextHandler(&said, nil))
	if cfg.Items == nil {
		cfg.Items = items(4, 4096)
	}
	if cfg.Size == 0 {
		cfg.Size = 64 << 10
	}
	if before != nil {
		before(cfg.Dir)
	}
	b := newBench(t, cfg)
	if after != nil {
		after(b)
	}
	return said.String()
}

// file returns the path of a ready file.
func (b *bench) file(pos int) string {
	return filepath.Join(b.dir, "ready", seq{0, pos}.fileName(b.fetcher.items[pos].Name))
}

// TestWindowLogsWhatItHandles provokes each message of the window: what a disk that fails and what
// another program does is never silent.
func TestWindowLogsWhatItHandles(t *testing.T) {
	for _, c := range []struct {
		want   string
		cfg    Config
		before func(dir string)
		after  func(*bench)
	}{
		{want: "cannot write the journal", after: func(b *bench) {
			b.idle()
			b.ok(b.journal.file.Close())
			if _, err := b.lease("a"); err == nil {
				b.idle()
			}
		}},
		{want: "cannot sync the journal", after: func(b *bench) {
			b.idle()
			b.Window.cfg.unsynced = false
			b.ok(b.journal.file.Close())
			b.syncJournal()
		}},
		{want: "cannot rewrite the journal", after: func(b *bench) {
			name := filepath.Join(b.dir, journalName)
			b.ok(errors.Join(os.Remove(name), os.MkdirAll(filepath.Join(name, "foreign"), 0o755)))
			b.compact()
		}},
		{want: "cannot write the epoch report", after: func(b *bench) {
			b.idle()
			first, second := b.must(b.lease("a")), b.must(b.lease("a"))
			b.ok(b.Ack(first.ID))
			b.ok(b.reports.file.Close())
			b.ok(b.Ack(second.ID))
		}},
		{want: "cannot retain a file for the next epoch", cfg: Config{Reuse: ReuseFit, Epochs: 2}, after: func(b *bench) {
			b.idle()
			l := b.must(b.lease("a"))
			b.ok(b.stage.held.Close())
			b.ok(b.Ack(l.ID))
			b.step()
		}},
		{want: "cannot mark the end of an epoch", cfg: Config{Epochs: 1}, after: func(b *bench) {
			b.idle()
			for range b.fetcher.items {
				b.ok(b.Ack(b.must(b.lease("a")).ID))
			}
			b.ok(b.stage.ready.Close())
			b.step()
		}},
		{want: "cannot remove a shard's file", after: func(b *bench) {
			b.idle()
			b.ok(b.Ack(b.must(b.lease("a")).ID))
			b.ok(b.stage.held.Close())
			b.step()
		}},
		{want: "cannot publish a shard's file", after: func(b *bench) {
			b.ok(os.WriteFile(b.file(0), []byte("foreign"), 0o600))
			b.idle()
		}},
		{want: "cannot read the free space", cfg: Config{MinFree: 1}, after: func(b *bench) {
			b.free = func() (int64, error) { return 0, unix.EIO }
			b.idle()
		}},
		{want: "cannot list the window's directories", after: func(b *bench) {
			b.ok(b.stage.ready.Close())
			b.scan()
		}},
		{want: "cannot restore the mode of a directory", after: func(b *bench) {
			b.ok(b.stage.Root().Close())
			b.mend()
		}},
		{want: "another program changed the modes of stager's directories, modes restored", after: func(b *bench) {
			b.ok(os.Chmod(filepath.Join(b.dir, "ready"), 0o700))
			b.mend()
		}},
		{want: "cannot stat a shard's file", after: func(b *bench) {
			b.idle()
			b.ok(errors.Join(os.Remove(b.file(0)), b.stage.held.Close()))
			b.scan()
		}},
		{want: "cannot stat the window's own files", cfg: Config{CountOwn: true, Size: 4 << 20}, after: func(b *bench) {
			b.ok(b.stage.Root().Close())
			b.measureNow()
		}},
		{want: "cannot prove that a shard's file was verified, fetching it again", after: func(b *bench) {
			b.idle()
			b.ok(os.Chtimes(b.file(0), time.Time{}, time.Unix(1, 0)))
			b.crash()
		}},
		{want: "another program removed or changed a shard's file, fetching it again", after: func(b *bench) {
			b.idle()
			l := b.must(b.lease("a"))
			b.ok(os.Remove(filepath.Join(b.dir, ".stager/held", filepath.Base(b.file(0)))))
			if _, err := b.Open(l.ID); !errors.Is(err, ErrLost) {
				b.t.Errorf("got %v, want %v", err, ErrLost)
			}
		}},
		{want: "removing foreign files from stager's own directories", before: func(dir string) {
			whole := filepath.Join(dir, ".stager/whole")
			if err := errors.Join(os.MkdirAll(whole, 0o755), unix.Mkfifo(filepath.Join(whole, "foreign"), 0o644)); err != nil {
				panic(err)
			}
		}},
		{want: "ignoring one of stager's own files that another program replaced", before: func(dir string) {
			if err := errors.Join(os.MkdirAll(filepath.Join(dir, ".stager"), 0o755), unix.Mkfifo(filepath.Join(dir, cursorName), 0o644)); err != nil {
				panic(err)
			}
		}},
		{want: "disk has less free space than the window's size, the window will wait for space", cfg: Config{Size: 1 << 60}},
		{want: "shard cannot be delivered", cfg: Config{OnBad: BadSkip}, after: gone},
		{want: "msg=moved", cfg: Config{OnBad: BadSkip}, after: gone},
	} {
		t.Run(c.want, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				if got := logOf(t, c.cfg, c.before, c.after); !strings.Contains(got, "level=WARN") || !strings.Contains(got, c.want) {
					t.Errorf("got the log %q, want %q at warn", got, c.want)
				}
			})
		})
	}
	t.Run("nothing", func(t *testing.T) {
		virtual(t, func(t *testing.T) {
			if got := logOf(t, Config{}, nil, (*bench).idle); strings.Contains(got, "level=WARN") {
				t.Errorf("got the log %q of an undisturbed window, want nothing at warn", got)
			}
		})
	})
}

// gone makes an object vanish from the source.
func gone(b *bench) {
	b.fetcher.script[0] = []error{ErrGone, ErrGone, ErrGone, ErrGone, ErrGone}
	b.idle()
	b.advance(time.Minute)
}

func TestSkippedErrorCountsShards(t *testing.T) {
	for n, want := range map[int]string{1: "1 shard was skipped: a ", 2: "2 shards were skipped: a "} {
		err := &SkippedError{Items: slices.Repeat([]BadItem{{Name: "a", Reason: "torn"}}, n)}
		if got := err.Error(); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q in front", got, want)
		}
	}
}
