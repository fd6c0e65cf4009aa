package trial

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/conformance/live"
)

// quiet is one row of the table of losses under way, in a directory of its own whose
// stores are directories.
type quiet struct {
	t           *testing.T
	binary, dir string
	env         []string
	moved       map[string]bool // metrics that were seen other than 0
	urls        []string        // words of a row, and what stands for each
	client      *http.Client

	mu  sync.Mutex
	log bytes.Buffer
}

// patience is more than any wait takes on a busy machine.
const patience = time.Minute

func newQuiet(t *testing.T, binary string) *quiet {
	t.Helper()
	dir, err := os.MkdirTemp("", "loss-") // a short path, for the socket
	if err != nil {
		t.Fatal(err)
	}
	q := &quiet{t: t, binary: binary, dir: dir, moved: make(map[string]bool)}
	t.Cleanup(func() {
		_ = os.RemoveAll(dir)
		if t.Failed() {
			t.Logf("stager said:\n%s", q.said())
		}
	})
	q.client = &http.Client{Timeout: 2 * patience, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", q.path("s"))
		},
	}}
	return q
}

// Write is the process's, for its log.
func (q *quiet) Write(p []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.log.Write(p)
}

func (q *quiet) said() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.log.String()
}

func (q *quiet) path(name string) string { return filepath.Join(q.dir, name) }

func (q *quiet) must(err error) {
	q.t.Helper()
	if err != nil {
		q.t.Fatal(err)
	}
}

func (q *quiet) write(name, text string) {
	q.t.Helper()
	q.must(errors.Join(os.MkdirAll(filepath.Dir(q.path(name)), 0o755), os.WriteFile(q.path(name), []byte(text), 0o644)))
}

// replace puts another file in a name's place, as programs do that never write in place.
func (q *quiet) replace(name, text string) {
	q.t.Helper()
	q.write(name+".new", text)
	q.must(os.Rename(q.path(name+".new"), q.path(name)))
}

func (q *quiet) edit(name, from, to string) {
	q.t.Helper()
	text, err := os.ReadFile(q.path(name))
	q.must(err)
	if !strings.Contains(string(text), from) {
		q.t.Fatalf("%s has no %s", name, from)
	}
	q.must(errors.Join(os.Remove(q.path(name)), os.WriteFile(q.path(name), []byte(strings.Replace(string(text), from, to, 1)), 0o644)))
}

// shards makes a source.
func (q *quiet) shards(n int) {
	q.t.Helper()
	for i := range n {
		q.write("src/shard-"+string(rune('0'+i))+".tar", strings.Repeat("x", 24<<10))
	}
}

// push commits a step by hand.
func (q *quiet) push(step int, model string) {
	q.t.Helper()
	dir := "step-" + string(rune('0'+step))
	q.write("pushed/"+dir+"/model", model)
	out, err := exec.Command(q.binary, "push", "--commit", q.path("pushed/"+dir), "file://"+q.path("ckpt/")).CombinedOutput()
	if err != nil {
		q.t.Fatalf("push: %v: %s", err, out)
	}
}

// damage changes the model of a step in the store.
func (q *quiet) damage(step int, model string) {
	q.t.Helper()
	found, err := filepath.Glob(q.path("ckpt/step-0000000" + string(rune('0'+step)) + "/data/*/model"))
	if err != nil || len(found) != 1 {
		q.t.Fatalf("got %q (%v), want one model", found, err)
	}
	q.must(errors.Join(os.Remove(found[0]), os.WriteFile(found[0], []byte(model), 0o644)))
}

// here puts the row's places into a text.
func (q *quiet) here(text string) string {
	return strings.NewReplacer(append(q.urls, "DIR", q.dir, "URL", "file://"+q.dir)...).Replace(text)
}

// walk goes through a row.
func (q *quiet) walk(l loss) {
	q.t.Helper()
	if l.root && os.Geteuid() != 0 {
		live.Require(q.t, "root", errors.New("this row takes root"))
	}
	if l.setup != nil {
		l.setup(q)
	}
	var args []string
	if l.plan != "" {
		q.write("plan.yaml", "apiVersion: stager.dev/v1alpha1\nkind: StagePlan\nmetadata: {name: loss}\nspec:\n"+q.here(l.plan))
		args = []string{"run", "-f", q.path("plan.yaml"), "--socket", q.path("s")}
	}
	for _, arg := range l.args {
		args = append(args, q.here(arg))
	}
	cmd := exec.Command("sh", append([]string{"-c", q.here(l.shell) + ` exec "$0" "$@"`, q.binary}, args...)...)
	cmd.Env = append(os.Environ(), q.env...)
	cmd.Stdout, cmd.Stderr = q, q
	run, err := start(cmd)
	q.must(err)
	defer run.kill()
	if l.plan != "" && !l.unready {
		q.await("it is ready", func() bool { code, _, err := q.try("GET", "/readyz", ""); return err == nil && code == 200 })
		if l.work != nil {
			l.work(q)
		}
		if want := regexp.MustCompile(l.status); l.status != "" {
			q.await("the status has "+l.status, func() bool { _, body := q.call("GET", "/v1/status", ""); return want.MatchString(body) })
			q.scrape()
		}
		for _, name := range l.moves {
			q.await(name+" moves", func() bool { q.scrape(); return q.moved[name] })
		}
	}
	if l.term {
		q.must(run.cmd.Process.Signal(os.Interrupt))
	}
	select {
	case <-run.done:
	case <-time.After(patience):
		q.t.Fatal("stager does not end")
	}
	if got := run.cmd.ProcessState.ExitCode(); got != l.code {
		q.t.Errorf("got the exit code %d, want %d", got, l.code)
	}
	for _, want := range l.log {
		if !regexp.MustCompile(want).MatchString(q.said()) {
			q.t.Errorf("the log has nothing like %s", want)
		}
	}
}

// await waits until something is so.
func (q *quiet) await(what string, so func() bool) {
	q.t.Helper()
	for until := time.Now().Add(patience); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			_, status, _ := q.try("GET", "/v1/status", "")
			q.t.Fatalf("it never comes to be so: %s; the status is %s", what, status)
		}
	}
}

func (q *quiet) try(method, path, body string) (int, string, error) {
	r, err := http.NewRequestWithContext(context.Background(), method, "http://s"+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	resp, err := q.client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// call is a request to the API.
func (q *quiet) call(method, path, body string) (int, string) {
	q.t.Helper()
	code, text, err := q.try(method, path, body)
	q.must(err)
	return code, text
}

func (q *quiet) lease(reader string) (id string) {
	q.t.Helper()
	for range 2 { // the end of an epoch comes between its shards and those of the next
		var l struct {
			Lease string
			End   bool
		}
		code, body := q.call("POST", "/v1/inputs/train/lease?wait=1m&reader="+reader, "")
		if err := json.Unmarshal([]byte(body), &l); err != nil || l.Lease == "" && !l.End {
			q.t.Fatalf("got %d %s, want a lease", code, body)
		}
		if l.Lease != "" {
			return l.Lease
		}
	}
	q.t.Fatal("two epochs end one after the other")
	return ""
}

func (q *quiet) ack(lease string) {
	q.t.Helper()
	if code, body := q.call("POST", "/v1/leases/"+lease+"/ack", ""); code != http.StatusNoContent {
		q.t.Fatalf("got %d %s, want an acknowledgement", code, body)
	}
}

// take reads some shards.
func (q *quiet) take(n int) {
	q.t.Helper()
	for range n {
		q.ack(q.lease("a"))
	}
}

// refuse refuses the first shard some times.
func (q *quiet) refuse(n int) {
	q.t.Helper()
	for range n {
		q.call("POST", "/v1/leases/"+q.lease("a")+"/nack?reason=torn", "")
	}
}

// commit says that a checkpoint is complete; 200 is wanted of one that is waited for.
func (q *quiet) commit(path string, want int) {
	q.t.Helper()
	wait := ""
	if want == http.StatusOK {
		wait = "?wait=1m"
	}
	if code, body := q.call("POST", "/v1/outputs/ckpt/commit"+wait, `{"path":"`+path+`"}`); code != want {
		q.t.Errorf("got %d %s of the commit, want %d", code, body, want)
	}
}

// scrape notes which metrics are not 0.
func (q *quiet) scrape() {
	q.t.Helper()
	_, text := q.call("GET", "/metrics", "")
	line := regexp.MustCompile(`^(stager_[a-z_]+)(?:{[^}]*})? (\S+)$`)
	for in := bufio.NewScanner(strings.NewReader(text)); in.Scan(); {
		if m := line.FindStringSubmatch(in.Text()); m != nil && m[2] != "0" {
			q.moved[m[1]] = true
			q.moved[strings.TrimSuffix(m[1], "_count")] = true
		}
	}
}

// flood opens connections to the socket and to the port, and asks nothing on them.
func (q *quiet) flood(n int) {
	q.t.Helper()
	var port string
	address := regexp.MustCompile(`API listening on a port.* address=(\S+)`)
	q.await("the port", func() bool {
		if m := address.FindStringSubmatch(q.said()); m != nil {
			port = m[1]
		}
		return port != ""
	})
	for _, at := range [][2]string{{"unix", q.path("s")}, {"tcp", port}} {
		for range n {
			conn, err := net.Dial(at[0], at[1])
			q.must(err)
			q.t.Cleanup(func() { conn.Close() })
		}
	}
}
