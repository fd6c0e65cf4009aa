package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
	"github.com/stager-dev/stager/window/disk"
)

var errKilled = errors.New("the process was killed")

// twoSteps returns a store with two checkpoints that share some names.
func twoSteps(t *testing.T) (b *mem.Backend, one, two map[string]string) {
	t.Helper()
	b, one, two = mem.New(), model("1"), model("2")
	one["only/in-1"], two["only/in-2"] = "1", "2"
	push(t, b, 1, one)
	push(t, b, 2, two)
	return b, one, two
}

// begun creates a directory in each state in which a restore may find it.
var begun = map[string]func(t *testing.T, b *mem.Backend, dir string){
	"missing": func(*testing.T, *mem.Backend, string) {},
	"empty": func(t *testing.T, _ *mem.Backend, dir string) {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	},
	"restored": func(t *testing.T, b *mem.Backend, dir string) {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, dir, map[string]string{"mine.txt": "mine"})
		if _, err := Restore(t.Context(), RestoreConfig{Store: newStore(b), Dir: dir, Step: 2}); err != nil {
			t.Fatal(err)
		}
	},
}

// atEachStep calls f for each step of a restore of step 1, with a hook that calls stop there.
func atEachStep(t *testing.T, f func(t *testing.T, b *mem.Backend, dir string, cfg RestoreConfig, stopAt int)) {
	for name, begin := range begun {
		t.Run(name, func(t *testing.T) {
			steps := 0
			for k := -1; k < steps; k++ { // the first run counts them
				b, _, _ := twoSteps(t)
				dir := filepath.Join(t.TempDir(), "there")
				begin(t, b, dir)
				cfg := RestoreConfig{Store: newStore(b), Dir: dir, Step: 1}
				if k < 0 {
					cfg.hook = func(string) error { steps++; return nil }
					if _, err := Restore(t.Context(), cfg); err != nil {
						t.Fatal(err)
					}
					if steps < 5 {
						t.Fatalf("a restore has %d steps, want more", steps)
					}
					continue
				}
				f(t, b, dir, cfg, k)
			}
		})
	}
}

// whole fails the test unless dir holds exactly the files of one step. With none, dir may also
// have no RESTORED.json.
func whole(t *testing.T, what, dir string, one, two map[string]string, none bool) {
	t.Helper()
	s, err := openSite(RestoreConfig{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	r, _, err := s.report(restored)
	s.close()
	if errors.Is(err, fs.ErrNotExist) && none {
		return
	}
	if err != nil {
		t.Fatalf("%s: %s: %v", what, restored, err)
	}
	want := maps.Clone(map[int64]map[string]string{1: one, 2: two}[r.Step])
	got := read(t, dir)
	delete(got, "mine.txt")
	equal(t, fmt.Sprintf("%s: beside %s of step %d", what, restored, r.Step), got, want)
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), ".stager*")); len(left) > 0 {
		t.Errorf("%s: left behind %v", what, left)
	}
}

// Two restores to one directory used a work directory of the same name, which each removed at its
// start. The first moved the incomplete files of the second and reported success. Now the second
// is refused, or runs when the first has ended.
func TestRestoreIsAloneInItsDirectory(t *testing.T) {
	_, one, two := twoSteps(t)
	atEachStep(t, func(t *testing.T, b *mem.Backend, dir string, cfg RestoreConfig, stopAt int) {
		step, at := -1, ""
		var second error
		cfg.hook = func(s string) error {
			if step++; step == stopAt {
				at = s
				_, second = Restore(t.Context(), RestoreConfig{Store: newStore(b), Dir: dir, Step: 2})
			}
			return nil
		}
		_, first := Restore(t.Context(), cfg)
		busy := (*disk.BusyError)(nil)
		if !errors.As(second, &busy) || !strings.Contains(busy.Holder, fmt.Sprint("process ", os.Getpid())) {
			t.Errorf("at %q the second ends with %v, want a BusyError that names the first", at, second)
		}
		if first != nil {
			t.Errorf("at %q the first ends with %v, want success", at, first)
		}
		whole(t, "stopped at "+at, dir, one, two, false)
	})
}

// A restore that is killed at any step leaves a state that the next one finishes or replaces
// completely, whichever step that one restores.
func TestRestoreGoesOnAfterAKillAtAnyStep(t *testing.T) {
	_, one, two := twoSteps(t)
	for _, next := range []int64{1, 2} {
		atEachStep(t, func(t *testing.T, b *mem.Backend, dir string, cfg RestoreConfig, stopAt int) {
			step, at := -1, ""
			cfg.hook = func(s string) error {
				if step++; step == stopAt {
					at = s
					return errKilled
				}
				return nil
			}
			if _, err := Restore(t.Context(), cfg); !errors.Is(err, errKilled) {
				t.Fatalf("killed at %q: %v", at, err)
			}
			whole(t, "killed at "+at, dir, one, two, true)
			if _, err := Restore(t.Context(), RestoreConfig{Store: newStore(b), Dir: dir, Step: next}); err != nil {
				t.Fatalf("after a kill at %q: %v", at, err)
			}
			whole(t, "after a kill at "+at, dir, one, two, false)
		})
	}
}

// After a boot, or on another node, the device number of a volume differs from the one in the
// plan of a killed restore. The restore was refused from then on: "files of it have changed".
func TestRestoreGoesOnUnderAnotherDeviceNumber(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ckpt")
	b, one, _ := twoSteps(t)
	begun["restored"](t, b, dir)
	cfg := RestoreConfig{Store: newStore(b), Dir: dir, Step: 1, hook: func(at string) error {
		if at == "check" { // all files have moved
			return errKilled
		}
		return nil
	}}
	if _, err := Restore(t.Context(), cfg); !errors.Is(err, errKilled) {
		t.Fatalf("got %v, want the kill", err)
	}
	plans, err := filepath.Glob(filepath.Join(dir, workshopDir, "*", planFile))
	if err != nil || len(plans) != 1 {
		t.Fatalf("got the plans %q (%v), want one", plans, err)
	}
	text, err := os.ReadFile(plans[0])
	if err == nil {
		err = os.WriteFile(plans[0], regexp.MustCompile(`"dev":\d+`).ReplaceAll(text, []byte(`"dev":987654`)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	cfg.hook = nil
	if _, err := Restore(t.Context(), cfg); err != nil {
		t.Fatalf("got %v, want the restore finished", err)
	}
	for name, want := range one {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("got %.20q (%v) in %s, want %.20q", got, err, name, want)
		}
	}
}

// Changes that another process makes while files move are not lost, and the restore fails. The
// failed restore leaves everything as it was.
func TestRestoreLeavesWhatAppearsWhileItMoves(t *testing.T) {
	for name, disturb := range map[string]func(t *testing.T, dir string){
		"a file appears": func(t *testing.T, dir string) { write(t, dir, map[string]string{"only/in-1": "mine"}) },
		"a file is replaced": func(t *testing.T, dir string) {
			write(t, dir, map[string]string{"new": "mine"})
			if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "optim/rank0.pt")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, _, two := twoSteps(t)
			dir := t.TempDir()
			if _, err := Restore(t.Context(), RestoreConfig{Store: newStore(b), Dir: dir, Step: 2}); err != nil {
				t.Fatal(err)
			}
			var want map[string]string
			cfg := RestoreConfig{Store: newStore(b), Dir: dir, Step: 1}
			cfg.hook = func(at string) error {
				if at == "name "+planFile { // all checks have passed
					disturb(t, dir)
					want = maps.Clone(two)
					maps.Copy(want, read(t, dir))
					maps.DeleteFunc(want, func(p, _ string) bool { return strings.HasPrefix(p, private) })
				}
				return nil
			}
			_, err := Restore(t.Context(), cfg)
			if backends.KindOf(err) != backends.Changed {
				t.Errorf("got %v, want an error of kind changed", err)
			}
			equal(t, "afterwards", read(t, dir), want)
			if _, err := os.Stat(filepath.Join(dir, restored)); err != nil {
				t.Error(err)
			}
		})
	}
}

// restore --step removed a user's file that had taken the name of a restored one, and replaced a
// file that it had never restored.
func TestRestoreRefusesFilesThatItDidNotWrite(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(t *testing.T, dir string)
		names  []string // names in the error; none: nothing is lost
	}{
		"one it never restored":                        {func(t *testing.T, dir string) { write(t, dir, map[string]string{"only/in-1": "mine"}) }, []string{"only/in-1"}},
		"one in the place of a restored one that goes": {func(t *testing.T, dir string) { replaceFile(t, dir, "only/in-2", "mine") }, []string{"only/in-2"}},
		"one in the place of a restored one that stays": {func(t *testing.T, dir string) {
			replaceFile(t, dir, "optim/rank0.pt", "optimizer of 9")
		}, []string{"optim/rank0.pt"}},
		"two": {func(t *testing.T, dir string) {
			replaceFile(t, dir, "only/in-2", "mine")
			replaceFile(t, dir, "model.pt", "mine")
		}, []string{"only/in-2", "model.pt"}},
		"one changed in place, with its time": {func(t *testing.T, dir string) {
			p := filepath.Join(dir, "only/in-2")
			info, err := os.Stat(p)
			if err == nil {
				err = errors.Join(os.WriteFile(p, []byte("X"), 0o644), os.Chtimes(p, info.ModTime(), info.ModTime()))
			}
			if err != nil {
				t.Fatal(err)
			}
		}, []string{"only/in-2"}},
		"a symbolic link": {func(t *testing.T, dir string) {
			write(t, dir, map[string]string{"aside": "mine"})
			if err := errors.Join(os.MkdirAll(filepath.Join(dir, "only"), 0o755), os.Symlink("../aside", filepath.Join(dir, "only/in-1"))); err != nil {
				t.Fatal(err)
			}
		}, []string{"only/in-1"}},
		"a RESTORED.json that is a user's": {func(t *testing.T, dir string) { replaceFile(t, dir, restored, "{}") }, []string{restored}},
		"one with the bytes that come":     {func(t *testing.T, dir string) { write(t, dir, map[string]string{"only/in-1": "1"}) }, nil},
		"restored ones that were copied":   {func(t *testing.T, dir string) { replaceFile(t, dir, "model.pt", model("2")["model.pt"]) }, nil},
		"restored ones with another link":  {func(t *testing.T, dir string) { link(t, dir, "model.pt", "kept") }, nil},
		"one gone":                         {func(t *testing.T, dir string) { remove(t, dir, "only/in-2") }, nil},
		"a directory in the place of one gone": {func(t *testing.T, dir string) {
			remove(t, dir, "only/in-2")
			write(t, dir, map[string]string{"only/in-2/x": "mine"})
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b, one, _ := twoSteps(t)
			dir := t.TempDir()
			if _, err := Restore(t.Context(), RestoreConfig{Store: newStore(b), Dir: dir, Step: 2}); err != nil {
				t.Fatal(err)
			}
			tt.change(t, dir)
			before, there := read(t, dir), listing(t, dir)
			cfg := RestoreConfig{Store: newStore(b), Dir: dir, Step: 1}
			_, err := Restore(t.Context(), cfg)
			if len(tt.names) == 0 {
				if err != nil {
					t.Fatal(err)
				}
				got := read(t, dir)
				for p, text := range one {
					if got[p] != text {
						t.Errorf("%s begins %.20q, want %.20q", p, got[p], text)
					}
				}
				return
			}
			if backends.KindOf(err) != backends.Exist || !strings.Contains(fmt.Sprint(err), "--overwrite") {
				t.Fatalf("got %v, want an error of kind exist that names --overwrite", err)
			}
			for _, p := range tt.names {
				if !strings.Contains(err.Error(), fmt.Sprintf("%q", p)) {
					t.Errorf("got %v, want that it names %s", err, p)
				}
			}
			equal(t, "after it was refused", read(t, dir), before)
			if got := listing(t, dir); !slices.Equal(got, there) {
				t.Errorf("after it was refused there are %v, want %v", got, there)
			}
			cfg.Overwrite = true
			if _, err := Restore(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			got := read(t, dir)
			delete(got, "aside")
			if tt.names[0] == restored { // it recorded which files a restore wrote
				delete(got, "only/in-2")
			}
			equal(t, "overwritten", got, one)
		})
	}
}

// Overwriting never removes directories and never writes through links.
func TestRestoreNeverFollowsALinkNorRemovesADirectory(t *testing.T) {
	for name, plant := range map[string]func(dir, outside string) error{
		"a link to a directory within": func(dir, _ string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, "other"), 0o755), os.Symlink("other", filepath.Join(dir, "optim")))
		},
		"a link to a directory outside": func(dir, outside string) error { return os.Symlink(outside, filepath.Join(dir, "optim")) },
		"a file for a directory":        func(dir, _ string) error { return os.WriteFile(filepath.Join(dir, "optim"), []byte("mine"), 0o644) },
		"a directory for a file":        func(dir, _ string) error { return os.Mkdir(filepath.Join(dir, "model.pt"), 0o755) },
		"a link for the workshop":       func(dir, outside string) error { return os.Symlink(outside, filepath.Join(dir, workshopDir)) },
		"a link within for it": func(dir, _ string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, "other"), 0o755), os.Symlink("other", filepath.Join(dir, workshopDir)))
		},
		"a fifo for the lock": func(dir, _ string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, workshopDir), 0o755), unix.Mkfifo(filepath.Join(dir, workshopDir, disk.LockName), 0o644))
		},
		"a link for the lock": func(dir, outside string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, workshopDir), 0o755), os.Symlink(filepath.Join(outside, "lock"), filepath.Join(dir, workshopDir, disk.LockName)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, _, _ := twoSteps(t)
			dir, outside := t.TempDir(), t.TempDir()
			if err := plant(dir, outside); err != nil {
				t.Fatal(err)
			}
			there := listing(t, dir)
			if _, err := Restore(t.Context(), RestoreConfig{Store: newStore(b), Dir: dir, Step: 1, Overwrite: true}); err == nil {
				t.Error("it was restored")
			} else if strings.Contains(err.Error(), "EOF") || !strings.Contains(err.Error(), dir) {
				t.Errorf("got %v, want a sentence that names %s", err, dir)
			}
			if got := append(listing(t, dir), listing(t, outside)...); !slices.Equal(got, there) {
				t.Errorf("there are %v, want %v", got, there)
			}
		})
	}
}

// A restore does not run while a prefetch or a window uses the directory.
func TestRestoreWaitsForAPrefetch(t *testing.T) {
	b, one, two := twoSteps(t)
	dir := t.TempDir()
	directory, err := disk.Open(dir, "a prefetch")
	if err != nil {
		t.Fatal(err)
	}
	cfg := RestoreConfig{Store: newStore(b), Dir: dir, Step: 1}
	busy := (*disk.BusyError)(nil)
	if _, err := Restore(t.Context(), cfg); !errors.As(err, &busy) || busy.Holder != "a prefetch" {
		t.Errorf("got %v, want a BusyError that names the prefetch", err)
	}
	if err := directory.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.hook = func(at string) error {
		if directory, err := disk.Open(dir, "another"); !errors.As(err, &busy) {
			t.Errorf("at %q a prefetch began beside the restore: %v", at, err)
			directory.Close()
		}
		return nil
	}
	if _, err := Restore(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, disk.Private)); err != nil {
		t.Fatal(err)
	}
	whole(t, "afterwards", dir, one, two, false)
}

// Removing the lock file admits a second restore. The first one stops without changing what the
// second one wrote.
func TestRestoreEndsWhenItsLockIsRemoved(t *testing.T) {
	b, one, two := twoSteps(t)
	dir := t.TempDir()
	cfg := RestoreConfig{Store: newStore(b), Dir: dir, Step: 1}
	cfg.hook = func(at string) error {
		if at != "directory" {
			return nil
		}
		remove(t, dir, filepath.Join(workshopDir, disk.LockName))
		_, err := Restore(t.Context(), RestoreConfig{Store: newStore(b), Dir: dir, Step: 2})
		return err
	}
	if _, err := Restore(t.Context(), cfg); err == nil {
		t.Error("the first one reported success")
	}
	cfg.hook = nil
	whole(t, "afterwards", dir, one, two, false)
}

// A restore is killed while files move, and a user changes a file before the next restore. The
// killed restore cannot be finished, and the user's file stays.
func TestRestoreDoesNotFinishOverAUsersFile(t *testing.T) {
	b, one, _ := twoSteps(t)
	dir := t.TempDir()
	if _, err := Restore(t.Context(), RestoreConfig{Store: newStore(b), Dir: dir, Step: 2}); err != nil {
		t.Fatal(err)
	}
	cfg := RestoreConfig{Store: newStore(b), Dir: dir, Step: 1}
	cfg.hook = func(at string) error {
		if strings.HasSuffix(at, "/"+stagedDir+"/optim/rank0.pt") {
			return errKilled
		}
		return nil
	}
	if _, err := Restore(t.Context(), cfg); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	replaceFile(t, dir, "model.pt", "mine")
	cfg.hook = nil
	for range 2 {
		if _, err := Restore(t.Context(), cfg); backends.KindOf(err) != backends.Exist || !strings.Contains(err.Error(), `"model.pt"`) {
			t.Errorf("got %v, want an error of kind exist that names model.pt", err)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "model.pt")); string(text) != "mine" {
			t.Errorf("the user's file holds %q (%v), want what the user wrote", text, err)
		}
	}
	cfg.Overwrite = true
	if _, err := Restore(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	equal(t, "overwritten", read(t, dir), one)
}

// replaceFile replaces the file of a name by another file.
func replaceFile(t *testing.T, dir, name, text string) {
	t.Helper()
	write(t, dir, map[string]string{"another": text})
	if err := os.Rename(filepath.Join(dir, "another"), filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, dir, name, as string) {
	t.Helper()
	if err := os.Link(filepath.Join(dir, name), filepath.Join(dir, as)); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// listing returns every name below dir with its inode.
func listing(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		info, err := d.Info()
		if err == nil {
			names = append(names, fmt.Sprint(strings.TrimPrefix(p, dir), " ", info.Mode(), " ", inode(info)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
