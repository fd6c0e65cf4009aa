package backends_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stager-dev/stager/backends"
)

// A meeting is an object of version v0 and several writers that try to replace that version. They
// exclude each other with claim files. Each operation of a writer waits until the schedule allows
// it.
type meeting struct {
	version  string // of the object
	replaced int    // number of replacements
	claims   map[string]string
	created  int
	writers  []*claimant
	log      []string // the schedule, for failure messages
}

// claimant is one writer.
type claimant struct {
	m    *meeting
	id   int
	ask  chan operation
	next *operation // the operation it waits for
	held time.Time  // it is suspended until then
	dead bool
	done atomic.Bool
	err  error
}

type operation struct {
	what   string
	run    func() error
	answer chan error
}

var errDied = backends.Errorf(backends.Permission, "commit", "k", "the writer died")

func (w *claimant) do(what, name string, run func() error) error {
	if w.dead {
		return errDied
	}
	op := operation{what + name[strings.LastIndexByte(name, '-')+1:], run, make(chan error)}
	w.ask <- op
	return <-op.answer
}

func (w *claimant) CreateClaim(_ context.Context, name string) (token string, err error) {
	err = w.do("create claim ", name, func() error {
		if w.m.claims[name] != "" {
			return backends.Errorf(backends.Exist, "commit", name, "it is there")
		}
		w.m.created++
		token = fmt.Sprint("token ", w.m.created)
		w.m.claims[name] = token
		return nil
	})
	return token, err
}

func (w *claimant) ReadClaim(_ context.Context, name string) (token string, err error) {
	err = w.do("read claim ", name, func() error {
		if token = w.m.claims[name]; token == "" {
			return backends.Errorf(backends.NotExist, "commit", name, "it is not there")
		}
		return nil
	})
	return token, err
}

func (w *claimant) DeleteClaim(_ context.Context, name string) error {
	return w.do("delete claim ", name, func() error {
		delete(w.m.claims, name)
		return nil
	})
}

func (w *claimant) current(context.Context) (v backends.Version, err error) {
	err = w.do("compare", "", func() error {
		v = backends.Version(w.m.version)
		return nil
	})
	return v, err
}

func (w *claimant) replace(ctx context.Context) error {
	return w.do("replace", "", func() error {
		if ctx.Err() != nil {
			return ctx.Err() // the request is not sent
		}
		w.m.version = fmt.Sprint("of writer ", w.id)
		w.m.replaced++
		return nil
	})
}

// write replaces the object and retries like a Store.
func (w *claimant) write(ctx context.Context) {
	claim := backends.NewClaim(w, "k", "v0")
	for w.err = claim.Replace(ctx, w.current, w.replace); w.err != nil && backends.KindOf(w.err).Retryable(); {
		time.Sleep(time.Second)
		w.err = claim.Replace(ctx, w.current, w.replace)
	}
	w.done.Store(true)
}

// A plan decides each step of a schedule. pick returns one of n choices; 0 means that the last
// active writer continues.
type plan struct {
	pick    func(n int) int
	crashes int // how many writers may die
	holds   int // how often a writer may be suspended, briefly or for longer than its claim is valid
}

// play runs writers against each other and describes what is wrong with the outcome, or returns "".
func play(t *testing.T, writers int, p plan) (wrong string) {
	synctest.Test(t, func(t *testing.T) {
		m := &meeting{version: "v0", claims: make(map[string]string)}
		for i := range writers {
			w := &claimant{m: m, id: i, ask: make(chan operation, 1)}
			m.writers = append(m.writers, w)
			go w.write(t.Context())
		}
		last, usual := m.writers[0], p.crashes+p.holds
		for steps := 0; ; steps++ {
			ready := m.ready()
			if len(ready) == 0 {
				if !slices.ContainsFunc(m.writers, func(w *claimant) bool { return !w.done.Load() }) {
					break
				}
				time.Sleep(time.Second) // let a timer fire
				continue
			}
			if steps == 5000 {
				wrong = "the writers come to no end"
				p = plan{}
			}
			last = m.step(ready, last, &p, wrong != "")
		}
		if wrong == "" {
			wrong = m.verdict(p.crashes+p.holds == usual)
		}
		if wrong != "" {
			wrong += "\n" + strings.Join(m.log, "\n")
		}
	})
	return wrong
}

// ready returns the writers that wait to continue.
func (m *meeting) ready() (ready []*claimant) {
	synctest.Wait()
	for _, w := range m.writers {
		select {
		case op := <-w.ask:
			w.next = &op
		default:
		}
		if w.next != nil && !time.Now().Before(w.held) {
			ready = append(ready, w)
		}
	}
	return ready
}

// step lets one writer continue, die, or be suspended.
func (m *meeting) step(ready []*claimant, last *claimant, p *plan, over bool) *claimant {
	if i := slices.Index(ready, last); i > 0 {
		ready[0], ready[i] = ready[i], ready[0]
	}
	choices := len(ready)
	crash, hold, while := -1, -1, -1
	if p.crashes > 0 {
		crash, choices = choices, choices+1
	}
	if p.holds > 0 {
		hold, while, choices = choices, choices+1, choices+2
	}
	choice := 0
	if p.pick != nil && choices > 1 {
		choice = p.pick(choices)
	}
	w := ready[0]
	if choice < len(ready) {
		w = ready[choice]
	}
	op := *w.next
	note := fmt.Sprintf("writer %d: %s", w.id, op.what)
	switch {
	case over, choice == crash:
		note += ", and dies before"
		w.dead, w.next = true, nil
		p.crashes--
		m.log = append(m.log, note)
		op.answer <- errDied
	case choice == hold, choice == while:
		d := backends.ClaimTimeout / 4
		if choice == hold {
			d = backends.ClaimTimeout + 10*time.Second
		}
		m.log = append(m.log, fmt.Sprintf("%s, and is held up for %v before", note, d))
		w.held = time.Now().Add(d)
		p.holds--
	default:
		w.next = nil
		err := op.run()
		if err != nil {
			note += ": " + err.Error()
		}
		m.log = append(m.log, note)
		op.answer <- err
	}
	return w
}

// verdict describes what is wrong with the outcome.
func (m *meeting) verdict(undisturbed bool) string {
	won, alive := 0, 0
	for _, w := range m.writers {
		switch {
		case w.dead:
			continue
		case w.err == nil:
			won++
		case backends.KindOf(w.err) != backends.Changed:
			return fmt.Sprintf("writer %d ends with %v, want kind changed", w.id, w.err)
		}
		alive++
	}
	switch {
	case m.replaced > 1:
		return fmt.Sprintf("version v0 was replaced %d times, want once at most", m.replaced)
	case won > m.replaced:
		return fmt.Sprintf("%d writers won and %d replaced the object", won, m.replaced)
	case alive > 0 && m.replaced == 0:
		return "nobody replaced the object, want one"
	case undisturbed && won != 1:
		return fmt.Sprintf("%d writers won, want one", won)
	case undisturbed && len(m.claims) > 0:
		return fmt.Sprintf("claims %v are left, want none", m.claims)
	}
	return ""
}

// everyPlan calls play with all plans of at most deviations choices other than 0, and returns their
// number.
func everyPlan(deviations int, play func(pick func(n int) int) (goOn bool)) (plans int) {
	var path []int // choices; all further ones are 0
	for {
		var taken, open []int // the choices of this plan, and the number of options at each
		used := 0
		plans++
		ok := play(func(n int) int {
			c := 0
			if len(taken) < len(path) {
				c = min(path[len(taken)], n-1)
			}
			if c > 0 {
				used++
			}
			if taken = append(taken, c); used >= deviations && c == 0 {
				n = 1 // no deviations left
			}
			open = append(open, n)
			return c
		})
		if !ok {
			return plans
		}
		i := len(taken) - 1
		for ; i >= 0 && taken[i]+1 >= open[i]; i-- {
		}
		if i < 0 {
			return plans
		}
		path = append(taken[:i:i], taken[i]+1)
	}
}

// TestClaimInEverySchedule runs all schedules of two writers with few deviations: a switch in the
// middle, a crash, a suspended writer.
func TestClaimInEverySchedule(t *testing.T) {
	deviations := 2
	if os.Getenv("STAGER_TRIAL") == "full" {
		deviations = 3
	}
	for writers := 1; writers <= 3; writers++ {
		plans := everyPlan(deviations, func(pick func(int) int) bool {
			wrong := play(t, writers, plan{pick: pick, crashes: 2, holds: 1})
			if wrong != "" {
				t.Errorf("%d writers: %s", writers, wrong)
			}
			return wrong == ""
		})
		t.Logf("%d writers: %d schedules", writers, plans)
	}
}

func TestClaimInRandomSchedules(t *testing.T) {
	rounds := 300
	if os.Getenv("STAGER_TRIAL") == "full" {
		rounds = 100_000
	}
	for seed := range uint64(rounds) {
		random := rand.New(rand.NewPCG(seed, 0))
		odds := 2 + random.IntN(10)
		pick := func(n int) int {
			if random.IntN(odds) > 0 {
				return 0
			}
			return random.IntN(n)
		}
		writers := 2 + int(seed%3)
		if wrong := play(t, writers, plan{pick, random.IntN(writers), random.IntN(4)}); wrong != "" {
			t.Fatalf("seed %d, %d writers: %s", seed, writers, wrong)
		}
	}
}

// touched is a store that changes claim files after they are written.
type touched struct{ created int }

func (c *touched) CreateClaim(context.Context, string) (string, error) {
	c.created++
	return fmt.Sprint("created ", c.created), nil
}

func (*touched) ReadClaim(_ context.Context, name string) (string, error) {
	if !strings.HasSuffix(name, "-0") {
		return "", backends.Errorf(backends.NotExist, "commit", name, "it is not there")
	}
	return "another", nil
}

func (*touched) DeleteClaim(context.Context, string) error { return nil }

// An NFS server changed the modification time of a file, which is part of the token, when it was
// linked. The writer mistook its own claim for that of another writer and waited for ever.
func TestClaimNotRecognizedIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		current := func(context.Context) (backends.Version, error) { return "v0", nil }
		err := backends.NewClaim(&touched{}, "k", "v0").Replace(t.Context(), current, func(context.Context) error {
			t.Error("the object was replaced, want it left alone")
			return nil
		})
		if backends.KindOf(err) != backends.Unsupported || !strings.Contains(err.Error(), `as "created 1", but the store reports "another"`) {
			t.Errorf("got %v, want an error of kind unsupported that names both tokens", err)
		}
		// The writer that replaced the object may remove all claims, and a late writer may have
		// created one of the same name.
		versions := []backends.Version{"v0", "v1"}
		err = backends.NewClaim(&touched{}, "k", "v0").Replace(t.Context(), func(context.Context) (backends.Version, error) {
			v := versions[0]
			versions = versions[1:]
			return v, nil
		}, func(context.Context) error { return nil })
		if backends.KindOf(err) != backends.Changed {
			t.Errorf("got %v, want an error of kind changed", err)
		}
	})
}
