package trial

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stager-dev/stager/backends/conformance/live"
)

// nodeCases are ways to a wrong checkpoint of several nodes. Each was once one, with exit
// code 0 and "safe" in the log.
var nodeCases = []struct {
	name   string
	stores []string // beside a directory, in the short form
	play   func(*team)
}{
	{"fewer-nodes", []string{"s3"}, fewerNodes},
	{"one-node-of-two", nil, oneNodeOfTwo},
	{"two-jobs", []string{"smb-plain"}, twoJobs},
	{"old-pod-beside-new", nil, oldPodBesideNew},
	{"pause-between-files", []string{"hdfs"}, pauseBetweenFiles},
	{"pods-replaced", []string{"oss"}, podsReplaced},
	{"pod-replaced-overwrite", nil, podReplacedOverwrite},
	{"indices-swapped", []string{"nfs-4.1"}, indicesSwapped},
	{"attempts-differ", []string{"nfs-3"}, attemptsDiffer},
	{"rank-0-alone", nil, rankZeroAlone},
	{"slow-uploads", nil, slowUploads},
	{"rollback-retention", nil, rollbackRetention},
	{"saved-again", []string{"s3"}, savedAgain},
	{"later-commit", nil, laterCommit},
	{"restores-apart", []string{"s3", "smb-plain"}, restoresApart},
	{"rollback-restore", []string{"nfs-4.1"}, rollbackRestore},
}

// Nodes that come back fewer, other, swapped or late never make a checkpoint of two saves
// or of a part of one, and what all of them saved is committed. Each case runs stagers as
// processes; then every step that is committed is restored, the newest one as each node,
// and compared with what one save of all nodes wrote. STAGER_TRIAL=full runs every case
// over every store.
func TestCheckpointsOfSeveralNodes(t *testing.T) {
	t.Parallel()
	binary := build(t)
	atOnce := make(chan struct{}, 24) // they wait more than they work
	var all sync.WaitGroup
	play := func(t *testing.T, name string, v vault, play func(*team)) {
		all.Go(func() {
			atOnce <- struct{}{}
			defer func() { <-atOnce }()
			t.Run(name, func(t *testing.T) { play(newTeam(t, v)) })
		})
	}
	for _, c := range nodeCases {
		play(t, "file/"+c.name, vault{binary: binary, url: "file://" + t.TempDir() + "/ckpt/"}, c.play)
	}
	for _, s := range append(slices.Clone(stores), stored{"ceph", "s3", startCeph}) {
		var chosen []int
		for i, c := range nodeCases {
			if full && wanted(s) || !full && slices.Contains(c.stores, s.name) {
				chosen = append(chosen, i)
			}
		}
		if len(chosen) == 0 {
			continue
		}
		all.Go(func() { // a server may take long to start
			running, err := s.start(t)
			if err != nil {
				t.Run(s.name, func(t *testing.T) { live.Require(t, s.server, err) })
				return
			}
			t.Cleanup(func() { _ = running.Close() })
			for _, i := range chosen {
				c := nodeCases[i]
				play(t, s.name+"/"+c.name, vault{binary: binary, url: running.url("ckpt-" + c.name), env: running.Env()}, c.play)
			}
		})
	}
	all.Wait()
}

// A job of three nodes is killed in the middle of step 2 and comes back with two: step 2
// was committed of two parts, and restored without the files of the third node.
func fewerNodes(m *team) {
	pods := m.start("job-a", 3)
	m.save("three nodes", 1, pods...)
	m.committed(1, pods...)
	kill(pods[2])
	m.save("three nodes", 2, pods[:2]...)
	pods[0].brought(2)
	pods[1].brought(2)
	kill(pods...)
	fewer := []*pod{m.pod("job-a", 0, 2, pods[0].volume), m.pod("job-a", 1, 2, pods[1].volume)}
	m.meet(fewer...)
	m.newest(1)
	m.save("two nodes", 3, fewer...)
	m.committed(3, fewer...)
	m.newest(3)
}

// A job of two nodes comes back with one: the files of its rank became all of step 2.
func oneNodeOfTwo(m *team) {
	pods := m.start("job-a", 2)
	m.save("two nodes", 1, pods...)
	m.committed(1, pods...)
	kill(pods[1])
	m.save("two nodes", 2, pods[0])
	pods[0].brought(2)
	kill(pods[0])
	one := m.pod("job-a", 0, 1, pods[0].volume)
	one.awaitUp()
	m.save("one node", 3, one)
	m.committed(3, one)
	terminate([]int{0, 75}, one)
	m.newest(3)
}

// Node 0 of one job and node 1 of another one made one COMMIT.
func twoJobs(m *team) {
	pods := []*pod{m.pod("job-a", 0, 2, ""), m.pod("job-b", 1, 2, "")}
	for _, p := range pods {
		p.awaitLog("registered as a node of the job")
		p.awaitUp()
	}
	for _, p := range pods {
		m.save(p.job, 1, p)
	}
	pods[0].awaitLog("waiting for other nodes.* node 1")
	if m.other {
		pods[0].brought(1)
		pods[1].brought(1)
		m.committed(1, pods...)
	}
	late := m.pod("job-b", 0, 2, "")
	late.awaitLog("another job has registered at the destination.*job-a")
	m.newest(-1)
}

// A pod was taken for lost and another one took its place; both live. The part of the old
// one and that of the other node made one COMMIT.
func oldPodBesideNew(m *team) {
	old := m.start("job-a", 2)
	fresh := m.pod("job-a", 0, 2, "")
	fresh.awaitLog("registered as a node of the job")
	m.meet(fresh, old[1])
	m.save("with the old pod", 1, old[0])
	old[0].brought(1)
	w := m.save("with the new pod", 1, old[1])
	if m.other {
		m.committed(1, old[1])
	}
	m.judge()
	fresh.write(w)
	m.committed(1, fresh, old[1])
	old[0].awaitLog("a newer pod has replaced this node")
	m.newest(1)
	if full { // it watches a minute for the part of the other node
		terminate([]int{75}, old[0])
	}
}

// Node 1 pauses between its files longer than the quiet period, and node 0 writes the
// sign for all: node 1's first burst became its part. Node 0 is faster to call files quiet,
// so that it decides before node 1 could find its last file quiet.
func pauseBetweenFiles(m *team) {
	m.output = "quietPeriod: 100ms"
	pods := []*pod{m.pod("job-a", 0, 2, "")}
	m.output = "quietPeriod: 2s"
	pods = append(pods, m.pod("job-a", 1, 2, ""))
	m.meet(pods...)
	w := m.begin("two nodes", 2, 2)
	pods[0].put(w, "__0_0.distcp", "0")
	pods[1].put(w, "__1_0.distcp", "1")
	clock := m.begin("quiet", 1, 1)
	clock.nodes[0] = true
	pods[1].put(clock, "any.bin", "which nobody says is complete")
	pods[1].awaitLog("a checkpoint is complete.* step=1 ")
	if m.other {
		pods[1].brought(2)
	}
	pods[1].put(w, "__1_1.distcp", "11")
	pods[0].put(w, ".metadata", "pickle.")
	w.nodes = map[int]bool{0: true, 1: true}
	m.committed(2, pods...)
	m.newest(2)
	terminate([]int{0}, pods...)
	m.newest(2)
}

// Both pods of a job are replaced in the middle of step 1. The part that node 1 had
// brought and node 0's new one made one COMMIT.
func podsReplaced(m *team) {
	old := m.start("job-a", 2)
	m.save("the first run", 1, old[1])
	old[1].brought(1)
	kill(old...)
	fresh := m.start("job-a", 2)
	w := m.save("the second run", 1, fresh[0])
	fresh[0].brought(1)
	if m.other {
		m.committed(1, fresh[0])
	}
	m.judge()
	fresh[1].write(w)
	m.committed(1, fresh...)
	m.newest(1)
	terminate([]int{0}, fresh...)
}

// A replaced pod saves a step again that is committed. With overwrite the COMMIT became one
// of two runs.
func podReplacedOverwrite(m *team) {
	m.output += ", conflict: overwrite"
	old := m.start("job-a", 2)
	m.save("the first run", 1, old...)
	m.committed(1, old...)
	kill(old[0])
	fresh := m.pod("job-a", 0, 2, "")
	m.meet(fresh, old[1])
	w := m.save("the second run", 1, fresh)
	fresh.brought(1)
	if m.other {
		m.committed(1, fresh)
	}
	m.newest(1)
	old[1].write(w)
	m.committed(1, fresh)
	m.awaitNew("the COMMIT is that of the second run", func() bool { return strings.Contains(m.restored(1), "the second run") })
	m.newest(1)
}

// The volumes of two nodes are mounted the other way round after a restart in the middle
// of a step: node 1's files were in both parts, node 0's in none.
func indicesSwapped(m *team) {
	pods := m.start("job-a", 2)
	m.save("before", 1, pods...)
	m.committed(1, pods...)
	kill(pods[0])
	m.save("before", 2, pods...)
	pods[1].brought(2)
	kill(pods[1])
	swapped := []*pod{m.pod("job-a", 0, 2, pods[1].volume), m.pod("job-a", 1, 2, pods[0].volume)}
	m.meet(swapped...)
	if m.other {
		m.committed(2, swapped...)
	}
	m.newest(1) // nobody else could prove that the files of step 2 are of one run
	m.save("after", 3, swapped...)
	m.committed(3, swapped...)
	m.newest(3)
}

// The attempts of nodes are counted for each index, as with backoffLimitPerIndex: after one
// failure nothing was ever committed again.
func attemptsDiffer(m *team) {
	pods := []*pod{m.prepare("job-a", 0, 2, ""), m.prepare("job-a", 1, 2, "")}
	for _, p := range pods {
		p.attempt = "0"
		p.start()
	}
	m.meet(pods...)
	m.save("first", 1, pods...)
	m.committed(1, pods...)
	kill(pods[1])
	again := m.prepare("job-a", 1, 2, "")
	again.attempt = "1"
	again.start()
	m.meet(pods[0], again)
	m.save("second", 2, pods[0], again)
	m.committed(2, pods[0], again)
	terminate([]int{0}, pods[0], again)
	m.newest(2)
}

// Rank 0 alone writes checkpoints: the other nodes brought no part, and nothing was ever
// committed. What rank 0 commits without --all-nodes is provisional, and "commit --wait" says so.
func rankZeroAlone(m *team) {
	m.output = "quietPeriod: 1s"
	pods := m.start("job-a", 3)
	for step := 1; step <= 2; step++ {
		w := m.save("rank 0", step, pods[0])
		w.count = 1
		m.committed(step, pods[0])
	}
	pods[0].commits(75, "only provisionally", 2)
	pods[0].commits(0, "", 2, "--all-nodes")
	terminate([]int{0}, pods...)
	m.newest(2)
}

// Saves come faster than uploads: each node chose by itself which ones it sent, so that of
// most steps there were some parts.
func slowUploads(m *team) {
	m.limit, m.keep = "96Ki", 3
	pods := m.start("job-a", 2)
	const saves = 20
	for step := 1; step <= saves; step++ {
		first, second := pods[step%2], pods[1-step%2]
		w := m.save("two nodes", step, first)
		first.awaitStatus("the step is complete", func(s outputStatus) bool { return s.Complete != nil && s.Complete.Step >= step })
		second.write(w)
	}
	terminate([]int{0}, pods...)
	saved := pods[0].saved()
	other := append(pods[1].saved(), pods[1].named(removedLine)...) // retention may come before it looks
	if slices.Sort(other); !slices.Equal(saved, other) {
		m.t.Errorf("node 0 reported steps %v to be saved, node 1 %v", saved, other)
	}
	for _, p := range pods { // one that a node skipped may still be saved, where another announces it late
		skipped := p.named(skipLine)
		done := slices.Concat(saved, skipped)
		slices.Sort(done)
		if len(slices.Compact(done)) != saves {
			m.t.Errorf("of %d steps %s reported %v to be saved and skipped %v", saves, p.name, saved, skipped)
		}
	}
	for _, s := range m.steps() { // node 0 may end while its retention removes a step
		if !s.Committed && !slices.Contains(saved, int(s.Step)) {
			m.t.Errorf("step %d was sent for nothing: %s has %d objects", s.Step, s.Dir, s.Files)
		}
	}
	m.newest(saves)
}

// After a rollback node 1 saves a step that is older than the newest one. Node 0's retention
// removed its part as one of a step that was never committed.
func rollbackRetention(m *team) {
	pods := m.start("job-a", 2)
	for _, step := range []int{100, 200} {
		m.save("before", step, pods...)
		m.committed(step, pods...)
	}
	w := m.save("after", 150, pods[1])
	pods[1].brought(150)
	m.stager(m.t, "prune", "--quiet", "--last", "50", m.url)
	pods[0].write(w)
	m.committed(150, pods...)
	m.newest(150)
	m.save("after", 250, pods...)
	m.committed(250, pods...)
	m.judge()
	if !m.lists("150") {
		m.t.Error("step 150 of both nodes is not committed")
	} else if !strings.Contains(m.restored(150), "after") {
		m.t.Error("step 150 is not restored")
	}
}

// A step is saved again after a rollback, where node 1's bytes are what they were and node
// 0's are not: node 1 took the COMMIT before for its own and brought no part.
func savedAgain(m *team) {
	m.output += ", conflict: overwrite"
	run := func(attempt string) (pods []*pod) {
		for i := range 2 {
			p := m.prepare("job-a", i, 2, "")
			p.attempt = attempt
			p.start()
			pods = append(pods, p)
		}
		m.meet(pods...)
		return pods
	}
	pods := run("0")
	first := m.save("first", 1, pods...)
	m.committed(1, pods...)
	kill(pods...)
	pods = run("1")
	w := m.begin("second", 1, 2)
	for name, text := range first.files {
		w.files[name] = text
		if name == "rank0/model.bin" {
			text = w.text(name)
		}
		for _, p := range pods {
			if name == "all.json" || strings.HasPrefix(name, fmt.Sprintf("rank%d/", p.index)) {
				p.put(w, name, text)
			}
		}
	}
	for _, p := range pods {
		p.done(w)
	}
	m.committed(1, pods...)
	m.newest(1)
	if !strings.Contains(m.restored(1), "second") {
		m.t.Error("the second writing of step 1 is not committed")
	}
	terminate([]int{0}, pods...)
}

// restored returns what files of a step hold.
func (m *team) restored(step int) string {
	dir, err := os.MkdirTemp(m.work, "look-")
	if err != nil {
		m.t.Fatal(err)
	}
	m.stager(m.t, "restore", "--quiet", "--step", fmt.Sprint(step), "--node", "0", m.url, dir)
	text, err := os.ReadFile(dir + "/rank0/model.bin")
	if err != nil {
		m.t.Fatal(err)
	}
	return string(text)
}

// A COMMIT.json of a later version has one more field: it passed for a damaged one, and
// retention removed the step. A node that the step does not have got the files of node 0.
func laterCommit(m *team) {
	pods := m.start("job-a", 2)
	m.save("two nodes", 1, pods...)
	m.committed(1, pods...)
	kill(pods...)
	path := strings.TrimPrefix(m.url, "file://") + "step-00000001/COMMIT.json"
	if text, err := os.ReadFile(path); err == nil { // where files are files
		text = []byte(strings.Replace(string(text), "{", `{"later": {"a": 1},`, 1))
		if err := os.WriteFile(path, text, 0o644); err != nil {
			m.t.Fatal(err)
		}
	}
	if code, said := m.command("restore", "--quiet", "--node", "5", m.url, m.work+"/five"); code == 0 || !strings.Contains(said, "has no node 5") {
		m.t.Errorf("restore --node 5 ended with %d: %s", code, said)
	}
	m.stager(m.t, "prune", "--quiet", "--last", "1", m.url)
	m.newest(1)
}
