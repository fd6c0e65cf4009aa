package trial

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/servers"
)

// Exit codes of stager that the actors may end with.
const (
	exitMissing = 66 // no such step
	exitBusy    = 75 // another stager works there
)

// hungAfter is when a command counts as one that never ends.
const hungAfter = 3 * time.Minute

// Two writers of one step, a writer of the next, a retention and four restores, two of
// them into one directory, work at one destination at once. Writers are killed now and
// then. A step whose writer reported success can be restored with the bytes of exactly
// one writer, unless retention removed it by its rule; a restore always finds a step, and
// RESTORED.json stands beside the bytes of one step.
// STAGER_TRIAL=full makes 300 rounds over every store, STAGER_TRIAL_ROUNDS as many as it
// names.
func TestActorsShareADestination(t *testing.T) {
	rounds := 3
	if full {
		rounds = 300
	}
	if n, err := strconv.Atoi(os.Getenv("STAGER_TRIAL_ROUNDS")); err == nil {
		rounds = n
	}
	actorVaults(t, func(t *testing.T, v vault) {
		a := newActors(t, v)
		began := time.Now()
		for range rounds {
			a.round(t)
		}
		t.Logf("%d rounds in %v, a calm push takes %v: %v; broken: %v",
			rounds, time.Since(began).Round(time.Second), a.calm.Round(time.Millisecond), a.tally, a.broken)
	})
}

// actorVaults are a mounted directory and a bucket, and in full every real store.
func actorVaults(t *testing.T, test func(*testing.T, vault)) {
	if !full {
		vaults(t, test)
		return
	}
	binary := build(t)
	t.Run("file", func(t *testing.T) {
		test(t, vault{binary: binary, url: "file://" + t.TempDir() + "/ckpt/"})
	})
	for _, s := range append(slices.Clone(stores), stored{"ceph", "s3", startCeph}) {
		if !wanted(s) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			running, err := s.start(t)
			live.Require(t, s.server, err)
			t.Cleanup(func() { _ = running.Close() })
			test(t, vault{binary: binary, url: running.url("ckpt"), env: running.Env()})
		})
	}
}

func startCeph(t *testing.T) (store, error) {
	c, err := servers.StartCeph(t.Context(), servers.CephOptions{Buckets: []string{"trial"}})
	return store{Server: c, url: func(dir string) string { return "s3://trial/" + dir + "/" }}, err
}

// actor is a command of stager's that works beside others.
type actor struct {
	name string
	args []string
	step int           // that it writes
	at   time.Duration // when it starts
	dies time.Duration // when it is killed after that; 0: it is not

	began, ended time.Time

	code    int // how it ended; -1: by a signal
	killed  bool
	hung    bool
	restore restored // what it printed
	log     bytes.Buffer
}

func (a *actor) String() string {
	how := fmt.Sprintf("exit %d", a.code)
	if a.killed {
		how = fmt.Sprintf("killed after %v", a.dies)
	}
	return fmt.Sprintf("%s, started at %v, %s: %s", a.name, a.at.Round(time.Millisecond), how, strings.TrimSpace(a.log.String()))
}

// play runs an actor until it ends.
func (v vault) play(ctx context.Context, a *actor) {
	time.Sleep(a.at)
	a.began = time.Now()
	defer func() { a.ended = time.Now() }()
	limit := hungAfter
	if a.dies > 0 {
		limit = a.dies
	}
	ctx, cancel := context.WithTimeout(ctx, limit) // a kill ends it
	defer cancel()
	cmd := exec.CommandContext(ctx, v.binary, a.args...)
	cmd.Env = append(os.Environ(), v.env...)
	cmd.Stderr = &a.log
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		a.code, a.killed = -1, a.dies > 0 // a kill may come before the start
		fmt.Fprintln(&a.log, err)
		return
	}
	a.code = cmd.ProcessState.ExitCode()
	if cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
		a.killed, a.hung = a.dies > 0, a.dies == 0
	}
	_ = json.Unmarshal(out, &a.restore) // only restores print something
}

// actors share a destination, round after round.
type actors struct {
	vault
	work    string                      // for what is local
	rng     *rand.Rand                  // one seed, and yet processes meet as they like
	calm    time.Duration               // how long a push takes that nobody disturbs
	written map[int][]map[string][]byte // what each step's writers have
	newest  int                         // a step that is committed
	tally   map[string]int              // how actors ended
	broken  map[string]int              // promises, by kind
	count   int                         // rounds
}

// newActors commits the first step, beside which nobody works.
func newActors(t *testing.T, v vault) *actors {
	t.Helper()
	a := &actors{
		vault: v, work: t.TempDir(), rng: rand.New(rand.NewPCG(24, 1)),
		written: make(map[int][]map[string][]byte), tally: make(map[string]int), broken: make(map[string]int), newest: 1,
	}
	for range 2 { // the second push of these bytes finds a warm server
		first := a.writer(t, a.newest, "")
		began := time.Now()
		if a.play(t.Context(), first); first.code != 0 {
			t.Fatal(first)
		}
		a.calm = max(a.calm, time.Since(began))
	}
	return a
}

// writer is a push of a step. Salts tell the writers of one step apart.
func (a *actors) writer(t *testing.T, step int, salt string) *actor {
	t.Helper()
	files := content(step, salt, 128<<10)
	dir := filepath.Join(a.work, fmt.Sprint("src-", step, salt))
	for name, p := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), p, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	a.written[step] = append(a.written[step], files)
	return &actor{name: fmt.Sprint("writer ", salt, " of step ", step), step: step, args: []string{
		"push", "--quiet", "--commit", "--conflict=overwrite", "--bandwidth=2Mi", fmt.Sprint("--step=", step), dir, a.url,
	}}
}

func (a *actors) restorer(name, dir string, args ...string) *actor {
	return &actor{name: name, args: append([]string{"restore", "--quiet", "--output=json", a.url, dir}, args...)}
}

// round has all of them meet once.
func (a *actors) round(t *testing.T) {
	t.Helper()
	a.count++
	older, next, keep := 2*a.count, 2*a.count+1, 1+a.rng.IntN(2)
	writers := []*actor{a.writer(t, older, "a"), a.writer(t, older, "b"), a.writer(t, next, "")}
	for _, w := range writers {
		w.at = a.some(a.calm)
		if a.rng.IntN(4) == 0 {
			w.dies = a.some(a.calm * 3 / 2)
		}
	}
	fresh, own, shared := filepath.Join(a.work, fmt.Sprint("fresh-", a.count)), filepath.Join(a.work, "own"), filepath.Join(a.work, "shared")
	restorers := []*actor{
		a.restorer("restore to a new directory", fresh), a.restorer("restore over an earlier one", own),
		a.restorer("restore to a shared directory", shared), a.restorer("another restore there", shared),
	}
	for _, r := range restorers {
		r.at = a.some(2 * a.calm)
	}
	pause := a.some(a.calm/4) + time.Millisecond
	var all, work sync.WaitGroup
	for _, w := range writers {
		work.Go(func() { a.play(t.Context(), w) })
	}
	for _, r := range restorers {
		all.Go(func() { a.play(t.Context(), r) })
	}
	written := make(chan struct{})
	var prunes []*actor
	all.Go(func() {
		for over := false; !over; {
			p := &actor{name: "retention", at: pause, args: []string{"prune", "--quiet", fmt.Sprint("--last=", keep), a.url}}
			a.play(t.Context(), p)
			prunes = append(prunes, p)
			select {
			case <-written:
				over = true
			default:
			}
		}
	})
	work.Wait()
	close(written)
	all.Wait()

	everybody := slices.Concat(writers, restorers, prunes)
	before := sum(a.broken)
	for _, p := range everybody {
		a.ended(t, p)
	}
	a.restoredWhole(t, restorers[0], fresh, a.newest)
	a.restoredWhole(t, restorers[1], own, a.newest)
	a.sharedWhole(t, restorers[2], restorers[3], shared)
	a.look(t, writers, keep)
	if sum(a.broken) > before {
		for _, p := range everybody {
			t.Logf("round %d (the newest %d are kept): %v", a.count, keep, p)
		}
	}
	_ = os.RemoveAll(fresh) // disk is all that it would cost
	delete(a.written, older-4)
	delete(a.written, next-4)
}

func (a *actors) some(d time.Duration) time.Duration {
	return time.Duration(a.rng.Int64N(int64(d))) + 1
}

func sum(counts map[string]int) (n int) {
	for _, v := range counts {
		n += v
	}
	return n
}

// breaks notes a broken promise.
func (a *actors) breaks(t *testing.T, kind, format string, args ...any) {
	t.Helper()
	a.broken[kind]++
	t.Errorf("round %d: %s: %s", a.count, kind, fmt.Sprintf(format, args...))
}

// ended counts how an actor ended.
func (a *actors) ended(t *testing.T, p *actor) {
	t.Helper()
	kind, _, _ := strings.Cut(p.name, " ")
	switch {
	case p.hung:
		a.breaks(t, "hung", "%v", p)
	case p.killed:
		a.tally[kind+" killed"]++
	default:
		a.tally[fmt.Sprintf("%s exit %d", kind, p.code)]++
	}
}

// restoredWhole checks a restore that nobody else's business should disturb: a good step
// was there all the time.
func (a *actors) restoredWhole(t *testing.T, r *actor, dir string, atLeast int) {
	t.Helper()
	if r.code != 0 {
		a.breaks(t, "nothing restored", "step %d was committed all the time: %v", atLeast, r)
		return
	}
	switch step, err := a.holdsOne(dir); {
	case err != nil:
		a.breaks(t, "mixed", "%v: %v", r, err)
	case step != r.restore.Step || step < atLeast:
		a.breaks(t, "older step restored", "the directory has step %d and stager reported %d, want the same and at least %d", step, r.restore.Step, atLeast)
	}
}

// sharedWhole checks two restores into one directory, of which one may have been refused.
func (a *actors) sharedWhole(t *testing.T, one, two *actor, dir string) {
	t.Helper()
	var steps []int
	for _, r := range []*actor{one, two} {
		switch r.code {
		case 0:
			steps = append(steps, r.restore.Step)
		case exitBusy:
		default:
			a.breaks(t, "nothing restored", "a directory is shared by two: %v", r)
		}
	}
	if steps == nil {
		return
	}
	if step, err := a.holdsOne(dir); err != nil {
		a.breaks(t, "mixed", "a directory is shared by two that restored steps %v: %v", steps, err)
	} else if !slices.Contains(steps, step) {
		a.breaks(t, "older step restored", "a directory is shared by two that restored steps %v, and it has step %d", steps, step)
	}
}

// holdsOne returns the step of a directory's RESTORED.json, and an error unless the files
// beside it are those of one of its writers.
func (a *actors) holdsOne(dir string) (int, error) {
	var r restored
	text, err := os.ReadFile(filepath.Join(dir, "RESTORED.json"))
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return -1, err
	}
	var differ []error
	for i, files := range a.written[r.Step] {
		err := sameFiles(dir, files)
		if err == nil && len(r.Files) == len(files) {
			return r.Step, nil
		}
		differ = append(differ, fmt.Errorf("not those of writer %d of %d files: %w", i, len(files), err))
	}
	return r.Step, fmt.Errorf("RESTORED.json names step %d, and the %d files are of no writer: %w", r.Step, len(r.Files), errors.Join(differ...))
}

func sameFiles(dir string, files map[string][]byte) error {
	var differ []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, files[name]) {
			differ = append(differ, fmt.Sprintf("%s (%d bytes, %v)", name, len(got), err))
		}
	}
	if differ != nil {
		return fmt.Errorf("%d differ, such as %s", len(differ), differ[0])
	}
	return nil
}

// overtaken returns a writer of another step that began after all writers of step had
// ended, and succeeded; nil when there is none.
func overtaken(step int, writers []*actor) *actor {
	var last time.Time
	for _, w := range writers {
		if w.step == step && w.ended.After(last) {
			last = w.ended
		}
	}
	for _, w := range writers {
		if w.step != step && w.code == 0 && !w.killed && w.began.After(last) {
			return w
		}
	}
	return nil
}

// look restores what the round left, when nobody works there.
func (a *actors) look(t *testing.T, writers []*actor, keep int) {
	t.Helper()
	// The newest step is the one that was written last, whatever its number: of writers
	// that work at once it may be each.
	atLeast, succeeded := a.newest, make(map[int]bool)
	for _, w := range writers {
		if w.code == 0 && !w.killed {
			atLeast, succeeded[w.step] = max(a.newest, writers[0].step), true
		}
	}
	if next := writers[2]; !next.killed && next.code != 0 {
		a.breaks(t, "refused", "nobody else writes this step: %v", next)
	}
	dir := filepath.Join(a.work, "look")
	defer os.RemoveAll(dir) // disk is all that it would cost
	newest := a.restorer("a look at the newest", filepath.Join(dir, "newest"))
	a.play(t.Context(), newest)
	if a.restoredWhole(t, newest, filepath.Join(dir, "newest"), atLeast); newest.code != 0 {
		return
	}
	if len(newest.restore.FellBackFrom) > 0 {
		a.breaks(t, "lost", "a step is committed that is not good: %v", newest.restore.FellBackFrom)
	}
	a.newest = newest.restore.Step
	if w := overtaken(a.newest, writers); w != nil {
		a.breaks(t, "older step restored", "step %d, and this began when its writers had ended: %v", a.newest, w)
	}
	older := writers[0].step
	if older == a.newest {
		return
	}
	one := a.restorer("a look at the older", filepath.Join(dir, "older"), fmt.Sprint("--step=", older))
	a.play(t.Context(), one)
	byRule := keep == 1
	switch {
	case one.code == exitMissing && (byRule || !succeeded[older]):
	case one.code != 0:
		a.breaks(t, "lost", "step %d, written with success: %t, removed by the rule: %t: %v", older, succeeded[older], byRule, one)
	default:
		a.restoredWhole(t, one, filepath.Join(dir, "older"), older)
	}
}
