package stager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
	"github.com/stager-dev/stager/stager/api"
	"github.com/stager-dev/stager/stager/plan"
)

// job is a daemon over stores in memory: mem:// works, dead:// never responds, gated:// responds
// once the gate is open, and full:// accepts no writes.
type job struct {
	t      *testing.T
	mem    *mem.Backend
	dir    string
	socket string
	plan   string
	child  *Child
	gate   chan struct{} // closed when gated:// may respond
	pages  *pages        // of paged://
	begin  int           // objects that a window begins with at once; 0: the default
	log    *slog.Logger
	shard  plan.Shard

	patience time.Duration // in place of listPatience

	anyUser bool
	*Daemon
	term   context.CancelFunc // has the effect of SIGTERM
	ended  chan error
	client *http.Client
}

// dead is a store that cannot be reached, and whose packets are lost.
type dead struct{ *mem.Backend }

func (dead) List(ctx context.Context, _ string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		<-ctx.Done()
		yield(backends.Object{}, ctx.Err())
	}
}

// gated is a store whose listing blocks until its gate is open.
type gated struct {
	*mem.Backend
	gate chan struct{}
}

func (g gated) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		select {
		case <-g.gate:
			g.Backend.List(ctx, prefix)(yield)
		case <-ctx.Done():
			yield(backends.Object{}, ctx.Err())
		}
	}
}

// full is a store that rejects writes; if slow is set they hang instead.
type full struct {
	*mem.Backend
	slow bool
}

func (f full) Create(ctx context.Context, key string, _ backends.CreateOptions) (backends.Writer, error) {
	if f.slow {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return nil, backends.Errorf(backends.Permission, "create", key, "not for you")
}

func (f full) CreateParts(ctx context.Context, key string, opts backends.CreateOptions) (backends.PartWriter, error) {
	_, err := f.Create(ctx, key, opts)
	return nil, err
}

func (j *job) registry() *backends.Registry {
	scheme := func(name string, b backends.Backend) backends.Scheme {
		return backends.Scheme{Name: name, Open: func(_ context.Context, t backends.Target) (backends.Opened, error) {
			return backends.Opened{Backend: b, Prefix: strings.Trim(t.Path, "/")}, nil
		}}
	}
	return backends.NewRegistry(scheme("mem", j.mem), scheme("dead", dead{j.mem}), scheme("gated", gated{j.mem, j.gate}),
		scheme("full", full{j.mem, false}), scheme("vanishing", vanishing{j.mem}), scheme("slow", full{j.mem, true}), scheme("paged", paged{j.mem, j.pages}))
}

// newJob returns a job with the inputs and outputs of a plan; DIR in it is replaced by its
// directory.
func newJob(t *testing.T, spec string) *job {
	t.Helper()
	short, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(short) })
	j := &job{t: t, mem: mem.New(), gate: make(chan struct{}), pages: newPages(), dir: t.TempDir(), socket: filepath.Join(short, "run", "s.sock")}
	j.plan = "apiVersion: stager.dev/v1alpha1\nkind: StagePlan\nmetadata: {name: p}\nspec:\n" + strings.ReplaceAll(spec, "DIR", j.dir)
	for i := range 4 {
		j.mem.Put(fmt.Sprintf("train/s%d.tar", i), []byte{byte('0' + i)})
	}
	j.mem.Put("words/vocab.txt", []byte("a b c"))
	j.client = &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", j.socket)
		},
	}}
	return j
}

const (
	windowInput   = "  - {name: train, source: mem://b/train/, path: DIR/train, mode: window, window: {size: 1Mi, parallel: 1}, order: {by: name, epochs: 1}}\n"
	prefetchInput = "  - {name: words, source: mem://b/words/, path: DIR/words, mode: prefetch}\n"
	ckptOutput    = "  - {name: ckpt, path: DIR/out, destination: mem://b/out/, quietPeriod: 50ms, deadline: 1m}\n"
)

// sh returns a shell command.
func sh(script string) *Child { return &Child{Command: []string{"/bin/sh", "-c", script}} }

func mustParse(j *job) *plan.StagePlan {
	j.t.Helper()
	p, err := plan.Parse([]byte(j.plan), j.registry().Check)
	if err != nil {
		j.t.Fatal(err)
	}
	return p
}

// start runs the job.
func (j *job) start() {
	j.t.Helper()
	j.Daemon = New(Config{Plan: mustParse(j), Shard: j.shard, Registry: j.registry(), Socket: j.socket, Version: "test", Child: j.child, AnyUser: j.anyUser, Log: j.log})
	if j.begin > 0 {
		j.beginAfter, j.beginLeast = time.Millisecond, j.begin
	}
	if j.patience > 0 {
		j.listPatience = j.patience
	}
	ctx, cancel := context.WithCancel(context.Background())
	j.term, j.ended = cancel, make(chan error, 1)
	go func() { j.ended <- j.Run(ctx) }()
	j.t.Cleanup(cancel)
}

// end returns Run's result, and fails after a time that no error should take.
func (j *job) end() error {
	j.t.Helper()
	select {
	case err := <-j.ended:
		noGoroutines(j.t)
		return err
	case <-time.After(time.Minute):
		j.t.Fatalf("Run does not end; it is %+v", j.Snapshot())
		return nil
	}
}

// finish calls term and end.
func (j *job) finish() error {
	j.t.Helper()
	j.term()
	return j.end()
}

// noGoroutines fails if a goroutine of the product is left.
func noGoroutines(t *testing.T) {
	t.Helper()
	buf := make([]byte, 1<<20)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		left := ""
		for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")[1:] {
			if strings.Contains(g, "stager-dev/stager/") && !strings.Contains(g, "testing.tRunner") {
				left = g
			}
		}
		if left == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("a goroutine is left:\n%s", left)
			return
		}
	}
}

// await waits until a condition is true.
func (j *job) await(what string, so func() bool) {
	j.t.Helper()
	for deadline := time.Now().Add(time.Minute); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			j.t.Fatalf("it never comes to be so: %s; it is %+v", what, j.Snapshot())
		}
	}
}

func (j *job) ready() {
	j.t.Helper()
	j.await("ready", func() bool { s := j.Snapshot(); return s.Ready && s.Phase == api.Running })
}

func (j *job) phase(p api.Phase) {
	j.t.Helper()
	j.await(string(p), func() bool { return j.Snapshot().Phase == p })
}

// call sends a request to the API.
func (j *job) call(method, path, body string) (int, string) {
	j.t.Helper()
	r, err := http.NewRequest(method, "http://s"+path, strings.NewReader(body))
	if err != nil {
		j.t.Fatal(err)
	}
	resp, err := j.client.Do(r)
	if err != nil {
		j.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		j.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// lease leases the next shard of train.
func (j *job) lease() (l api.LeaseResponse) {
	j.t.Helper()
	code, body := j.call("POST", "/v1/inputs/train/lease?wait=1m", "")
	if err := json.Unmarshal([]byte(body), &l); code != 200 || err != nil {
		j.t.Fatalf("a lease is %d %s", code, body)
	}
	return l
}

func (j *job) ack(l api.LeaseResponse) {
	j.t.Helper()
	if code, body := j.call("POST", "/v1/leases/"+l.Lease+"/ack", ""); code != 204 {
		j.t.Fatalf("an acknowledgement is %d %s", code, body)
	}
}

// write creates a file below the job's directory.
func (j *job) write(name, text string) {
	j.t.Helper()
	name = filepath.Join(j.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
		j.t.Fatal(err)
	}
}

// saved reports whether a step is in the store.
func (j *job) saved(step int) bool {
	_, ok := j.mem.Get(fmt.Sprintf("out/step-%08d/COMMIT.json", step))
	return ok
}
