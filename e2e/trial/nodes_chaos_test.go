package trial

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/servers"
)

// chaos is a job of up to four nodes to which random things happen.
type chaos struct {
	*team
	rng     *rand.Rand
	pods    []*pod // of the current run of the trainers, by index
	run     int
	step    int  // the last that was written
	restart bool // the trainers have to begin a new run
	stopped map[*pod]int
	others  map[*pod]int   // of another job; how many events each lives on
	network *servers.Proxy // between pods and the store; nil: it cannot be cut
	cut     int            // for how many events it is
	last    *writing       // when it can be committed
	tally   map[string]int
}

// Four nodes save together while their stagers are killed, pods are replaced, nodes come and
// go, another job uses the destination, and a node stands still. Every committed step is
// whole and of one save, all nodes restore the same step, none that was reported safe is
// lost, and what all nodes saved is committed once nothing disturbs them.
// STAGER_TRIAL_EVENTS and STAGER_TRIAL_SEED choose other runs.
func TestNodesInChaos(t *testing.T) {
	events, seed := 300, uint64(time.Now().UnixNano())
	if n, err := strconv.Atoi(os.Getenv("STAGER_TRIAL_EVENTS")); err == nil {
		events = n
	} else if !full {
		live.Require(t, "trial", fmt.Errorf("300 random events take minutes: set STAGER_TRIAL=full, or STAGER_TRIAL_EVENTS"))
	}
	if n, err := strconv.ParseUint(os.Getenv("STAGER_TRIAL_SEED"), 10, 64); err == nil {
		seed = n
	}
	actorVaults(t, func(t *testing.T, v vault) {
		m := newTeam(t, v)
		m.keep = 5
		m.output += ", conflict: overwrite"
		m.other = false // trainers that begin before all nodes are in one view mix their own writings
		c := &chaos{
			team: m, rng: rand.New(rand.NewPCG(seed, 25)), stopped: make(map[*pod]int), others: make(map[*pod]int), tally: make(map[string]int),
		}
		for _, pair := range v.env {
			if endpoint, ok := strings.CutPrefix(pair, "AWS_ENDPOINT_URL_S3="); ok {
				proxy, err := servers.NewProxy(endpoint)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(proxy.Close)
				c.network, m.podEnv = proxy, []string{"AWS_ENDPOINT_URL_S3=" + proxy.URL}
			}
		}
		t.Logf("seed %d", seed)
		began := time.Now()
		c.begin(4)
		for range events {
			c.event()
		}
		c.end()
		t.Logf("%d events in %v: %v", events, time.Since(began).Round(time.Second), c.tally)
	})
}

// begin starts a new run of the trainers with n nodes, each with a new pod. Some pods get a
// volume that another one had.
func (c *chaos) begin(n int) {
	c.t.Helper()
	var volumes []string
	for _, p := range c.pods {
		p.run.kill()
		volumes = append(volumes, p.volume)
	}
	c.rng.Shuffle(len(volumes), func(i, j int) { volumes[i], volumes[j] = volumes[j], volumes[i] })
	clear(c.stopped)
	c.pods = nil
	for i := range n {
		volume := ""
		if i < len(volumes) && c.rng.IntN(2) == 0 {
			volume = volumes[i]
		}
		c.pods = append(c.pods, c.pod("job-a", i, n, volume))
	}
	c.resume()
}

// resume has the trainers of all nodes restore, and go on in a new run.
func (c *chaos) resume() {
	c.t.Helper()
	c.run++
	c.last, c.restart = nil, false
	c.meet(c.pods...)
	c.step = max(c.check(), 0)
}

// check judges what is committed, and returns the newest step.
func (c *chaos) check() int {
	c.t.Helper()
	safe := -1 // before it looks: one that was replaced may finish what it began meanwhile
	for _, p := range c.team.pods {
		for _, step := range p.safe() {
			if slices.ContainsFunc(c.writings, func(w *writing) bool { return w.step == step && w.whole() }) {
				safe = max(safe, step)
			}
		}
	}
	newest := c.judge()
	if newest < safe {
		c.t.Errorf("step %d is restored, and step %d was reported to be safe", newest, safe)
	}
	if c.t.Failed() {
		c.t.FailNow()
	}
	return newest
}

// event has one thing happen.
func (c *chaos) event() {
	c.t.Helper()
	time.Sleep(time.Duration(c.rng.Int64N(int64(time.Second)))) // things meet as they like
	c.tick()
	if c.restart {
		c.happens("new run")
		c.wake()
		c.resume()
		return
	}
	switch k := c.rng.IntN(20); {
	case k < 7:
		c.happens("save")
		c.step++
		c.write(len(c.pods))
	case k < 8:
		c.happens("part of a save") // and the trainers crash
		c.step++
		c.write(1 + c.rng.IntN(len(c.pods)))
		c.replace(c.rng.IntN(len(c.pods)))
	case k < 9 && c.last != nil:
		c.happens("the same step again") // nodes count writings, so each must have seen the one before
		if c.rest(); c.last != nil {
			c.write(len(c.pods))
		}
	case k < 12:
		c.happens("SIGKILL")
		p := c.pods[c.rng.IntN(len(c.pods))]
		c.wakeOne(p)
		p.run.kill()
		p.start()
	case k < 13:
		c.happens("SIGKILL of all")
		c.wake()
		kill(c.pods...)
		for _, p := range c.pods {
			p.start()
		}
	case k < 14:
		c.happens("new pod")
		c.replace(c.rng.IntN(len(c.pods)))
	case k < 15:
		c.happens("other number of nodes")
		c.wake()
		c.begin(2 + c.rng.IntN(3))
	case k < 16:
		c.happens("second job")
		c.intrude()
	case k < 17 && c.network != nil:
		c.happens("network cut")
		c.network.Down(true)
		c.cut = 1 + c.rng.IntN(3)
	case k < 18:
		c.happens("slow node")
		p := c.pods[c.rng.IntN(len(c.pods))]
		_ = p.run.cmd.Process.Signal(syscall.SIGSTOP) // it may have ended
		c.stopped[p] = 1 + c.rng.IntN(3)
	default:
		c.happens("rest")
		c.rest()
	}
}

func (c *chaos) happens(what string) {
	c.tally[what]++
	c.t.Logf("%s: run %d, %d nodes, step %d", what, c.run, len(c.pods), c.step)
}

// tick ends what lasts for some events.
func (c *chaos) tick() {
	if c.cut--; c.cut == 0 {
		c.network.Down(false)
	}
	for p, left := range c.stopped {
		if c.stopped[p] = left - 1; left <= 1 {
			c.wakeOne(p)
		}
	}
	for p, left := range c.others {
		if c.others[p] = left - 1; left <= 1 {
			p.run.kill()
			delete(c.others, p)
		}
	}
}

func (c *chaos) wake() {
	if c.cut > 0 {
		c.cut = 0
		c.network.Down(false)
	}
	for _, p := range c.pods {
		c.wakeOne(p)
	}
}

func (c *chaos) wakeOne(p *pod) {
	delete(c.stopped, p)
	_ = p.run.cmd.Process.Signal(syscall.SIGCONT) // it may have ended
}

// write has the trainers of the first n nodes of a random order write the current step.
func (c *chaos) write(n int) {
	c.t.Helper()
	w := c.team.begin(fmt.Sprintf("run %d, writing %d", c.run, len(c.writings)), c.step, len(c.pods))
	for _, i := range c.rng.Perm(len(c.pods))[:n] {
		p := c.pods[i]
		if err := os.RemoveAll(p.stepDir(c.step)); err != nil { // of an earlier run
			c.t.Fatal(err)
		}
		p.write(w)
		p.tidy(c.step - 3)
	}
	if c.last = nil; w.whole() {
		c.last = w
	}
}

// tidy removes an old checkpoint, as trainers do.
func (p *pod) tidy(step int) {
	_ = os.RemoveAll(filepath.Join(p.volume, fmt.Sprint("step-", step))) // there may be none
}

// replace puts a new pod in the place of one, and has the trainers begin a new run.
func (c *chaos) replace(i int) {
	c.t.Helper()
	old := c.pods[i]
	c.wakeOne(old)         // it may live on
	if c.rng.IntN(3) > 0 { // else it lives beside the new one
		old.run.kill()
	}
	c.pods[i] = c.pod("job-a", i, len(c.pods), "")
	c.restart, c.last = true, nil
}

// intrude starts a pod of another job, whose trainer saves, too.
func (c *chaos) intrude() {
	c.t.Helper()
	n := len(c.pods)
	p := c.pod("job-b", c.rng.IntN(n), n, "")
	c.others[p] = 2 + c.rng.IntN(6)
	w := &writing{name: "of another job", step: c.step + 1, count: 0, nodes: make(map[int]bool), files: make(map[string]string)}
	p.write(w)
}

// rest waits until what all nodes saved is committed.
func (c *chaos) rest() {
	c.t.Helper()
	c.wake()
	if w := c.last; w != nil {
		c.await(fmt.Sprintf("step %d (%s) is committed", w.step, w.name), func() bool { return c.holds(w) })
	}
	c.check()
}

// holds reports whether a writing is committed, or a later step.
func (c *chaos) holds(w *writing) bool {
	for _, p := range c.pods {
		for _, step := range p.safe() {
			if step >= w.step {
				return true
			}
		}
	}
	return false
}

// end lets all nodes save once more, and ends them.
func (c *chaos) end() {
	c.t.Helper()
	c.wake()
	for p := range c.others {
		p.run.kill()
	}
	if c.restart {
		c.resume()
	}
	c.step++
	c.write(len(c.pods))
	c.rest()
	terminate([]int{0, 75}, c.pods...)
	c.newest(c.step)
}
