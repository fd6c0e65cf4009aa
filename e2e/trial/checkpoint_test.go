package trial

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/conformance/live"
)

// commit is what this looks at in a COMMIT.json, and restored what restore prints.
type (
	commit struct {
		Data  string
		Files []struct{ Path, At string }
	}
	restored struct {
		Step         int
		Files        []string
		FellBackFrom []any
	}
)

// vault is where checkpoints go in a trial, and how it looks from outside.
type vault struct {
	binary, url string
	env         []string
	disk        string                                  // its objects are files below this, unless it is ""
	names       func(context.Context) ([]string, error) // of all that the server has
}

// vaults are a mounted directory and a bucket, whose objects can be looked at as files.
func vaults(t *testing.T, test func(*testing.T, vault)) {
	binary := build(t)
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "ckpt")
		test(t, vault{binary: binary, url: "file://" + dir + "/", disk: dir, names: filesBelow(filepath.Dir(dir))})
	})
	t.Run("s3", func(t *testing.T) {
		t.Parallel()
		s, err := startS3(t)
		live.Require(t, "s3", err)
		t.Cleanup(func() { _ = s.Close() })
		test(t, vault{binary: binary, url: s.url("ckpt"), disk: s.disk, env: s.Env(), names: s.names})
	})
}

// allVaults are a mounted directory and every store.
func allVaults(t *testing.T, test func(*testing.T, vault)) {
	binary := build(t)
	t.Run("file", func(t *testing.T) {
		if !full {
			t.Parallel()
		}
		dir := t.TempDir()
		test(t, vault{binary: binary, url: "file://" + dir + "/ckpt/", names: filesBelow(dir)})
	})
	overStores(t, func(t *testing.T, s store) {
		test(t, vault{binary: binary, url: s.url("ckpt"), env: s.Env(), names: s.names})
	})
}

// job is a directory of checkpoints, and the stager that saves it.
type job struct {
	vault
	work string
	env  []string
	log  bytes.Buffer
	run  *process
}

// newJob makes a job with a plan; more is added to its output.
func newJob(t *testing.T, v vault, limit, more string, env ...string) *job {
	t.Helper()
	work, err := os.MkdirTemp("", "trial-") // a short path, for the socket
	if err != nil {
		t.Fatal(err)
	}
	j := &job{vault: v, work: work, env: env}
	t.Cleanup(func() {
		if j.run != nil {
			j.run.kill()
		}
		_ = os.RemoveAll(work)
		if t.Failed() {
			t.Logf("stager said:\n%s", j.log.String())
		}
	})
	plan := fmt.Sprintf(`apiVersion: stager.dev/v1alpha1
kind: StagePlan
metadata: {name: trial}
spec:
  limits: {bandwidth: %s}
  outputs:
  - {name: ckpt, path: %s, destination: %q, quietPeriod: 1h, keep: {last: 2}%s}
`, limit, filepath.Join(work, "out"), v.url, more)
	if err := os.WriteFile(filepath.Join(work, "plan.yaml"), []byte(plan), 0o644); err != nil {
		t.Fatal(err)
	}
	return j
}

func (j *job) start(t *testing.T) {
	t.Helper()
	cmd := exec.Command(j.binary, "run", "-f", filepath.Join(j.work, "plan.yaml"), "--socket", filepath.Join(j.work, "s"))
	cmd.Env = append(append(os.Environ(), j.vault.env...), j.env...)
	cmd.Stderr = &j.log
	run, err := start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	j.run = run
}

// end is what a pod does, once stager is up; all must be saved.
func (j *job) end(t *testing.T) {
	t.Helper()
	if code := j.terminate(t); code != 0 {
		t.Fatalf("stager ended with code %d", code)
	}
}

// terminate is what a pod does, once stager is up. It returns the code that stager ends
// with.
func (j *job) terminate(t *testing.T) int {
	t.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		conn, err := net.Dial("unix", filepath.Join(j.work, "s"))
		if err == nil {
			_ = conn.Close() // nothing was said
			break
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
	}
	_ = j.run.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	<-j.run.done
	return j.run.cmd.ProcessState.ExitCode()
}

// content is what a trainer writes of a step: the same every time it is asked.
func content(step int, salt string, size int) map[string][]byte {
	noise := func(seed string, n int) []byte {
		var key [32]byte
		copy(key[:], seed)
		p := make([]byte, n)
		_, _ = rand.NewChaCha8(key).Read(p) // it has no errors
		return p
	}
	files := map[string][]byte{"base/frozen.bin": noise("frozen", size/2), "model.pt": noise(fmt.Sprint("model", step, salt), size)}
	for i := range 8 {
		files[fmt.Sprintf("optim/%d.pt", i)] = noise(fmt.Sprint("optim", i, step, salt), size/64)
	}
	return files
}

// write writes a checkpoint as a trainer does, its marker last.
func (j *job) write(t *testing.T, step int, files map[string][]byte) {
	t.Helper()
	dir := filepath.Join(j.work, "out", fmt.Sprint("step-", step))
	for name, p := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), p, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, ".ready"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

// restore brings the newest step back, of which every byte is compared by who knows what
// was written. Step -1 says that there is none yet.
func (j *job) restore(t *testing.T, want func(step int) map[string][]byte, args ...string) int {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "back")
	cmd := exec.Command(j.binary, append([]string{"restore", "--output=json", j.url, dir}, args...)...)
	cmd.Env = append(os.Environ(), j.vault.env...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if cmd.ProcessState.ExitCode() == 66 {
		return -1
	}
	var r restored
	if err != nil || json.Unmarshal(out, &r) != nil {
		t.Fatalf("restore: %v\n%s", err, said.String())
	}
	if len(r.FellBackFrom) > 0 {
		t.Errorf("a step was committed that is not good: %+v", r.FellBackFrom)
	}
	files := want(r.Step)
	for name, p := range files {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, p) {
			t.Errorf("step %d: %s is not what was written (%d bytes, %v)", r.Step, name, len(got), err)
		}
	}
	if len(r.Files) != len(files) {
		t.Errorf("step %d has the files %v, want %d", r.Step, r.Files, len(files))
	}
	return r.Step
}

// leftOver prunes the vault, and returns what stays there and belongs to no COMMIT. A server may still
// write the body of a request whose client has been killed, so that it appears after a first pruning.
func (v vault) leftOver(t *testing.T) (names []string) {
	t.Helper()
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		v.stager(t, "prune", "--last", "2", "--abandoned", "0s", v.url)
		if names = v.unreferenced(t); len(names) == 0 || time.Now().After(until) {
			return names
		}
	}
}

// unreferenced lists what lies in the vault and no COMMIT speaks of.
func (v vault) unreferenced(t *testing.T) (names []string) {
	t.Helper()
	all, err := v.names(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	needed := map[string]bool{"LATEST": true}
	for _, name := range all {
		dir, isCommit := strings.CutSuffix(below(name), "/COMMIT.json")
		if !isCommit {
			continue
		}
		var c commit
		if err := json.Unmarshal(v.read(t, dir+"/COMMIT.json"), &c); err != nil {
			t.Fatal(err)
		}
		for _, f := range c.Files {
			key := f.At
			if key == "" {
				key = dir + "/" + c.Data + "/" + f.Path
			}
			needed[key] = true
		}
		needed[dir+"/COMMIT.json"] = true
	}
	for _, name := range all {
		inner := slices.ContainsFunc(all, func(other string) bool { return strings.HasPrefix(other, name+"/") }) // a directory
		ours := strings.Contains(name, "ckpt/") && !needed[below(name)] && !strings.Contains(name, "/parts/") && !strings.HasPrefix(below(name), "nodes/")
		if ours && !inner || strings.Contains(name, "without end") || strings.HasPrefix(name, ".sgwtmp/multipart/") {
			names = append(names, name)
		}
	}
	return names
}

// below is a name of the server's as a key of the vault.
func below(name string) string {
	_, key, _ := strings.Cut(name, "ckpt/")
	return key
}

// read reads an object as anybody may.
func (v vault) read(t *testing.T, key string) []byte {
	t.Helper()
	dir := t.TempDir()
	directory, params, _ := strings.Cut(v.url, "?")
	v.stager(t, "prefetch", directory+key+"?"+params, dir)
	text, err := os.ReadFile(filepath.Join(dir, path.Base(key)))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// stager runs a command that must work.
func (v vault) stager(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command(v.binary, args...)
	cmd.Env = append(os.Environ(), v.env...)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("stager %q: %v\n%s", args, err, said)
	}
}

// SIGKILL of stager at any moment of an upload, again and again, while the trainer goes
// on and removes its older checkpoints. After each, restore returns a step whole, never
// one older than before; and when one upload has ended a sweep leaves nothing over.
func TestCheckpointsOutliveKills(t *testing.T) {
	kills, size, limit := 4, 9<<20, "64Mi" // more than a request takes, so that it goes in parts
	if full {
		kills = 300
	}
	allVaults(t, func(t *testing.T, v vault) {
		j := newJob(t, v, limit, "")
		written := func(step int) map[string][]byte { return content(step, "", size) }
		// How long it takes when nobody is killed.
		j.write(t, 0, written(0))
		began := time.Now()
		j.start(t)
		for j.restore(t, written) < 0 {
			if time.Since(began) > time.Minute {
				t.Fatal("the first step is never committed")
			}
		}
		calm := time.Since(began)
		j.run.kill()
		newest, moments := 0, map[string]int{}
		for step := 1; step <= kills; step++ {
			j.write(t, step, written(step))
			j.start(t)
			time.Sleep(rand.N(calm))
			if step > 1 { // what the trainer removes may be on its way
				if err := os.RemoveAll(filepath.Join(j.work, "out", fmt.Sprint("step-", step-1))); err != nil {
					t.Fatal(err)
				}
			}
			j.run.kill()
			got := j.restore(t, written)
			switch {
			case got < newest || got > step:
				t.Fatalf("after kill %d step %d was restored, and step %d had been committed", step, got, newest)
			case got == step:
				moments["after its COMMIT"]++
			case got > newest:
				moments["of a later one"]++
			default:
				moments["before any COMMIT"]++
			}
			newest = got
		}
		j.write(t, kills+1, written(kills+1))
		j.start(t)
		j.end(t)
		if got := j.restore(t, written); got != kills+1 {
			t.Errorf("at the end step %d is the newest, want %d", got, kills+1)
		}
		if left := v.leftOver(t); len(left) > 0 {
			t.Errorf("left over: %q", left)
		}
		t.Logf("%d kills %v; an upload takes %v", kills, moments, calm.Round(time.Millisecond))
	})
}

// view is what stager says of which nodes save together; "" is none.
func (j *job) view(t *testing.T) string {
	t.Helper()
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(j.work, "s"))
		},
	}}
	resp, err := client.Get("http://s/v1/outputs/ckpt")
	if err != nil {
		return "" // it is not up yet
	}
	defer resp.Body.Close() // it is only read
	var s struct{ View string }
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil && resp.StatusCode == http.StatusOK {
		t.Fatal(err)
	}
	return s.View
}

// meet waits until all nodes are in one view: what they write before is not saved.
func meet(t *testing.T, jobs []*job) {
	t.Helper()
	for until := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		views := make(map[string]bool)
		for _, j := range jobs {
			views[j.view(t)] = true
		}
		if len(views) == 1 && !views[""] {
			return
		} else if time.Now().After(until) {
			t.Fatalf("the nodes are in views %v, want one", views)
		}
	}
}

// Three nodes save; one is killed in the middle of step 3. All three restore step 2. New
// pods of the job make their own step 3, which the pods before do not overwrite, late as
// they are, though they may overwrite.
func TestThreeNodesSaveTogether(t *testing.T) {
	const size = 1 << 20
	vaults(t, func(t *testing.T, v vault) {
		attempt := "0"
		salt := func(node int) string { return fmt.Sprint(" of node ", node, " in attempt ", attempt) }
		written := func(node int) func(step int) map[string][]byte { // what all wrote, and of what has one name its own
			return func(step int) map[string][]byte {
				all := make(map[string][]byte)
				for n := range 3 {
					for name, p := range content(step, salt(n), size) {
						all[fmt.Sprintf("rank%d/%s", n, name)] = p
					}
				}
				return all
			}
		}
		own := func(node, step int) map[string][]byte {
			files := make(map[string][]byte)
			for name, p := range content(step, salt(node), size) {
				files[fmt.Sprintf("rank%d/%s", node, name)] = p
			}
			return files
		}
		begin := func(limit string) (jobs []*job) {
			for n := range 3 {
				j := newJob(t, v, limit, ", nodes: all, conflict: overwrite", "STAGER_COUNT=3", fmt.Sprint("STAGER_INDEX=", n), "STAGER_JOB_UID=job-1", "STAGER_ATTEMPT="+attempt)
				j.start(t)
				jobs = append(jobs, j)
			}
			meet(t, jobs)
			return jobs
		}
		committed := func(step int) {
			t.Helper()
			for until := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
				if _, err := os.Stat(filepath.Join(v.disk, fmt.Sprintf("step-%08d", step), "COMMIT.json")); err == nil {
					return
				} else if time.Now().After(until) {
					t.Fatalf("step %d is never committed", step)
				}
			}
		}
		jobs := begin("1Mi") // so that a busy machine kills in time
		for _, step := range []int{1, 2} {
			for n, j := range jobs {
				j.write(t, step, own(n, step))
			}
			committed(step)
		}
		for n, j := range jobs {
			j.write(t, 3, own(n, 3))
		}
		// In the middle: its snapshot is taken, and its part is not there.
		dir := filepath.Join(v.disk, "step-00000003")
		for until := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			if sent, _ := filepath.Glob(filepath.Join(dir, "data", "*", "rank1")); len(sent) > 0 {
				break
			} else if time.Now().After(until) {
				t.Fatal("node 1 sends nothing")
			}
		}
		jobs[1].run.kill()
		for _, part := range []string{"000000.json", "000002.json"} {
			for until := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
				if there, _ := filepath.Glob(filepath.Join(dir, "parts", "*", "*", part)); len(there) > 0 {
					break
				} else if time.Now().After(until) {
					t.Fatalf("%s is never there", part)
				}
			}
		}
		if there, _ := filepath.Glob(filepath.Join(dir, "parts", "*", "*", "000001.json")); len(there) > 0 {
			t.Fatal("node 1 was killed too late to prove anything")
		}
		for n, j := range jobs {
			if got := j.restore(t, written(n), "--node", fmt.Sprint(n)); got != 2 {
				t.Errorf("node %d restores step %d, want 2", n, got)
			}
			if n != 1 {
				j.run.kill()
			}
		}
		attempt = "1"
		late := jobs
		jobs = begin("64Mi")
		for n, j := range jobs {
			j.write(t, 3, own(n, 3))
		}
		committed(3)
		for n, j := range jobs {
			j.end(t)
			if got := j.restore(t, written(n)); got != 3 {
				t.Errorf("node %d restores step %d of the new pods, want 3", n, got)
			}
		}
		for n, j := range late {
			j.log.Reset()
			j.start(t)
			code := j.terminate(t)
			if said, want := j.log.String(), "a newer pod has replaced this node"; code == 0 || !strings.Contains(said, want) {
				t.Errorf("the first pod of node %d ended with code %d and did not say %q but\n%s", n, code, want, said)
			}
			if got := j.restore(t, written(n)); got != 3 {
				t.Errorf("after the first pod of node %d step %d is restored, want 3 as the new pods wrote it", n, got)
			}
		}
		if left := v.leftOver(t); len(left) > 0 {
			t.Errorf("left over: %q", left)
		}
	})
}
