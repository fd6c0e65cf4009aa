package explain

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
	"github.com/stager-dev/stager/stager/internal/golden"
	"github.com/stager-dev/stager/stager/jobspec/pai"
)

// fast is the bandwidth of a node with 10 Gbit/s.
const fast = 1.25e9

// explained reports on a job, which must be valid.
func explained(t *testing.T, file string, cfg Config) *Report {
	t.Helper()
	cfg.Name, cfg.File = "job.yaml", []byte(file)
	if cfg.Now.IsZero() {
		cfg.Now = time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)
	}
	r, err := Explain(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The reports on the manual's three jobs are reviewed golden files.
func TestExplainPrintsWhatWasRead(t *testing.T) {
	prices, err := os.ReadFile("../../examples/s3.prices.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p, err := ParsePrices(prices)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, file string
		cfg        Config
	}{
		{"window", "window.yaml", Config{NodeBandwidth: fast, Assume: map[string]Size{"train": {2e12, 2000}}, Checkpoint: map[string]int64{"": 5e9}}},
		{"thousand", "thousand.yaml", Config{
			NodeBandwidth: 25e9 / 8, StoreBandwidth: 200e9 / 8, Within: 15 * time.Minute, Prices: p,
			Assume: map[string]Size{"model": {140e9, 30}}, Checkpoint: map[string]int64{"": 2e9},
		}},
		{"second", "digits.pai.yaml", Config{
			NodeBandwidth: fast, Assume: map[string]Size{"storage-digits": {12e9, 600}},
			Pai: pai.Options{User: "me", Storages: map[string]string{"digits": "s3://datasets/digits"}, ReadSecret: "s3-read", DataSize: 20 << 30},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file, err := os.ReadFile(filepath.Join("../../examples", tt.file))
			if err != nil {
				t.Fatal(err)
			}
			r := explained(t, string(file), tt.cfg)
			var text bytes.Buffer
			if err := r.Text(&text); err != nil {
				t.Fatal(err)
			}
			golden.File(t, "testdata/"+tt.name+".txt", text.Bytes())
			out, err := json.MarshalIndent(r, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden.File(t, "testdata/"+tt.name+".json", append(out, '\n'))
			for _, pod := range r.Pods {
				for _, part := range pod.Parts {
					if part.Reason == "" {
						t.Errorf("%s %s is put in without a reason", part.Kind, part.Name)
					}
				}
			}
		})
	}
}

// one returns a Job with one container, annotations, and additional fields in its pod spec and
// container.
func one(annotations, spec, container string) string {
	return `apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    metadata:
      annotations: {` + annotations + `}
    spec:
      restartPolicy: Never
` + spec + `
      containers:
      - name: main
        image: x
        command: [x]
` + container + "\n"
}

const gi = int64(1 << 30)

// Every check is tested at its boundary: the exact limit fits, and one byte or one second more does
// not.
func TestVerdictChangesAtTheBoundary(t *testing.T) {
	const in, out = `stager.dev/in.train: "s3://b/train/ -> /data ? size=1Gi"`, `stager.dev/out.ckpt: "/out -> s3://b/ckpt/ ? size=3Gi&deadline=100s"`
	bare := func(size int64) Config {
		return Config{NodeBandwidth: fast, Assume: map[string]Size{"train": {size, 0}}}
	}
	saved := func(size int64, rate float64) Config {
		return Config{NodeBandwidth: rate, Checkpoint: map[string]int64{"": size}}
	}
	for _, tt := range []struct {
		name      string
		file      string
		fits, not Config
		want      Finding
	}{
		{
			"maxBytes", one(in, "", ""), bare(gi), bare(gi + 1),
			Finding{Kind: NoSpace, Name: "maxBytes", Has: gi, Needs: gi + 1, Line: 7},
		},
		{
			"volume of an output", one(out, "", ""), saved(gi, fast), saved(gi+1, fast),
			Finding{Kind: NoSpace, Name: "volume", Has: 3 * gi, Needs: 3*gi + 3, Line: 7},
		},
		{
			"sizeLimit of the job's own volume",
			one(`stager.dev/in.train: "s3://b/train/ -> /data"`, "      volumes: [{name: data, emptyDir: {sizeLimit: 1Gi}}]", "        volumeMounts: [{name: data, mountPath: /data}]\n        resources: {requests: {ephemeral-storage: 2Gi}}"),
			bare(gi), bare(gi + 1),
			Finding{Kind: NoSpace, Name: "volume", Has: gi, Needs: gi + 1, Line: 7},
		},
		{
			"ephemeral-storage limit",
			one(`stager.dev/in.train: "s3://b/train/ -> /data"`, "      volumes: [{name: data, emptyDir: {}}]", "        volumeMounts: [{name: data, mountPath: /data}]\n        resources: {requests: {ephemeral-storage: 1Gi}, limits: {ephemeral-storage: 1Gi}}"),
			bare(gi), bare(gi + 1),
			Finding{Kind: NoSpace, Name: "ephemeral-storage limit", Has: gi, Needs: gi + 1, Line: 12},
		},
		{
			"ephemeral-storage request",
			one(`stager.dev/in.train: "s3://b/train/ -> /data"`, "      volumes: [{name: data, emptyDir: {}}]", "        volumeMounts: [{name: data, mountPath: /data}]\n        resources: {requests: {ephemeral-storage: 1Gi}}"),
			bare(gi), bare(gi + 1),
			Finding{Kind: NoSpace, Name: "ephemeral-storage request", Has: gi, Needs: gi + 1, Line: 12},
		},
		{
			"volume of a RAM disk",
			one(`stager.dev/out.ckpt: "/out -> s3://b/ckpt/ ? size=3Gi&medium=memory"`, "", "        resources: {requests: {memory: 2944Mi}}"),
			saved(gi, fast), saved(gi+1, fast), // the sidecar requests 128Mi
			Finding{Kind: NoSpace, Name: "volume", Has: 3 * gi, Needs: 3*gi + 3, Line: 7},
		},
		{
			"memory request",
			one(`stager.dev/out.ckpt: "/out -> s3://b/ckpt/ ? deadline=100s"`, "      volumes: [{name: out, emptyDir: {medium: Memory, sizeLimit: 4Gi}}]", "        volumeMounts: [{name: out, mountPath: /out}]\n        resources: {requests: {memory: 2944Mi}}"),
			saved(gi, fast), saved(gi+1, fast), // 3Gi including the sidecar's 128Mi
			Finding{Kind: NoSpace, Name: "memory request", Has: 3 * gi, Needs: 3*gi + 3, Line: 12},
		},
		{
			"a node's disk", one(in, "", ""),
			Config{NodeBandwidth: fast, Assume: map[string]Size{"train": {gi, 0}}, NodeDisk: 2 * gi, PodsPerNode: 2},
			Config{NodeBandwidth: fast, Assume: map[string]Size{"train": {gi, 0}}, NodeDisk: 2*gi - 1, PodsPerNode: 2},
			Finding{Kind: NoSpace, Name: "node disk", Has: 2*gi - 1, Needs: 2 * gi},
		},
		{
			"a node's memory", one(in, "", "        resources: {requests: {memory: 1Gi}}"),
			Config{NodeBandwidth: fast, Assume: map[string]Size{"train": {gi, 0}}, NodeMemory: gi},
			Config{NodeBandwidth: fast, Assume: map[string]Size{"train": {gi, 0}}, NodeMemory: gi - 1},
			Finding{Kind: NoSpace, Name: "node memory", Has: gi - 1, Needs: gi},
		},
		{
			"deadline", one(out, "", ""), saved(1000, 10), saved(1001, 10),
			Finding{Kind: BadLimit, Name: "deadline", Has: 100, Needs: 101, Line: 7},
		},
		{
			"grace period",
			one(out+`, stager.dev/out.more: "/more -> s3://b/more/ ? size=3Gi&deadline=100s"`, "", ""),
			Config{NodeBandwidth: 10, Checkpoint: map[string]int64{"ckpt": 990, "more": 10}},
			Config{NodeBandwidth: 10, Checkpoint: map[string]int64{"ckpt": 990, "more": 11}},
			Finding{Kind: BadLimit, Name: "grace period", Has: 130, Needs: 131, Line: 6},
		},
		{
			"staging", one(in, "", ""),
			Config{NodeBandwidth: 10, Assume: map[string]Size{"train": {1000, 0}}, Within: 100 * time.Second},
			Config{NodeBandwidth: 10, Assume: map[string]Size{"train": {1001, 0}}, Within: 100 * time.Second},
			Finding{Kind: BadLimit, Name: "staging", Has: 100, Needs: 101},
		},
		{
			"an unknown size", one(`stager.dev/in.train: "s3://b/train/ -> /data ? medium=disk"`, "", "        resources: {requests: {ephemeral-storage: 1Gi}}"),
			bare(gi),
			Config{NodeBandwidth: fast},
			Finding{Kind: NotKnown, Name: "size"},
		},
		{
			"an unknown checkpoint", one(out, "", ""), saved(1, fast),
			Config{NodeBandwidth: fast},
			Finding{Kind: NotKnown, Name: "checkpoint"},
		},
		{
			"an unknown bandwidth", one(in, "", ""), bare(gi),
			Config{Assume: map[string]Size{"train": {gi, 0}}},
			Finding{Kind: NotKnown, Name: "bandwidth"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if r := explained(t, tt.file, tt.fits); r.Verdict.State != Fits || r.Verdict.Kind != "" {
				t.Errorf("just enough: %+v, want that it fits", r.Verdict)
			}
			v := explained(t, tt.file, tt.not).Verdict
			if len(v.Findings) == 0 {
				t.Fatalf("one too much fits")
			}
			if f := v.Findings[0]; f.Kind != tt.want.Kind || f.Name != tt.want.Name || f.Has != tt.want.Has || f.Needs != tt.want.Needs || f.Line != tt.want.Line {
				t.Errorf("one too much: %+v, want %+v", f, tt.want)
			} else if f.Add == "" || f.Text == "" {
				t.Errorf("%+v says nothing, or not what to do", f)
			}
			if v.State == Fits || v.Kind != tt.want.Kind {
				t.Errorf("one too much: the verdict is %q of %q, want one of %q", v.State, v.Kind, tt.want.Kind)
			}
		})
	}
}

// A pod that shares its inputs reads exactly the bytes of its stripes.
func TestPodsShareWhatTheListingSays(t *testing.T) {
	m := mem.New()
	for key, size := range map[string]int{"a.tar": 5000, "b.tar": 100, "c.tar": 7000, "d.txt": 1 << 20} {
		m.Put(key, make([]byte, size))
	}
	open := func(context.Context, string, string) (*backends.Store, error) {
		return backends.NewStore(m, "mem://test/", backends.Options{}), nil
	}
	file := strings.Replace(one(`stager.dev/in.train: "s3://b/train/ -> /data ? size=1Gi&include=*.tar"`, "", ""), "spec:\n", "spec:\n  completions: 2\n  parallelism: 2\n  completionMode: Indexed\n", 1)
	r := explained(t, file, Config{Open: open, NodeBandwidth: fast})
	in := r.Pods[0].Inputs[0]
	if in.Objects != 3 || in.Bytes != 12100 || in.Largest != 7000 || in.PodTakes != 12000 || in.PodItems != 2 || in.OnDisk != 16384 || in.SizeFrom != Listed {
		t.Errorf("got %+v; the pod that takes most takes a.tar and c.tar: 12000 bytes, 16384 on disk", in)
	}
	if got, want := r.Total, (Total{Pods: 2, Requests: Requests{List: 2, Get: 3}, Egress: 12100}); got != want {
		t.Errorf("together %+v, want %+v", got, want)
	}
	if r.Verdict.State != Fits {
		t.Errorf("got %+v, want that it fits", r.Verdict)
	}
	whole := explained(t, strings.Replace(strings.Replace(file, "s3://b/train/", "hf://org/model", 1), "include=*.tar", "include=*.tar&layout=hf-cache", 1), Config{Open: open, NodeBandwidth: fast})
	if in := whole.Pods[0].Inputs[0]; in.PodTakes != 12100 || whole.Total.Egress != 2*12100 {
		t.Errorf("a model: a pod takes %d bytes, all %d; want each pod to take 12100", in.PodTakes, whole.Total.Egress)
	}
	cut := explained(t, file, Config{Open: open, NodeBandwidth: fast, ListLimit: 2})
	if in := cut.Pods[0].Inputs[0]; !in.AtLeast || in.Objects != 2 || !cut.Total.AtLeast || !strings.Contains(in.Note, "cut after 2 objects") {
		t.Errorf("a listing that was cut: %+v, want at least 2 objects", in)
	}
	if cut.Verdict.State != Unknown {
		t.Errorf("a listing that was cut: the verdict is %q, want %q", cut.Verdict.State, Unknown)
	}
}

// Errors of a store take precedence in the verdict.
func TestStoresThatFailAreTheVerdict(t *testing.T) {
	for _, tt := range []struct {
		kind     backends.Kind
		want     Kind
		optional string
	}{
		{backends.NotExist, MissingSource, ""},
		{backends.NotExist, "", "&optional=true"},
		{backends.Permission, Forbidden, ""},
		{backends.Unavailable, Unreachable, ""},
		{backends.Invalid, BadLimit, ""},
	} {
		open := func(context.Context, string, string) (*backends.Store, error) {
			return nil, backends.Errorf(tt.kind, "list", "", "no")
		}
		r := explained(t, one(`stager.dev/in.train: "s3://b/train/ -> /data ? size=1Gi`+tt.optional+`"`, "", ""), Config{Open: open, NodeBandwidth: fast})
		if r.Verdict.Kind != tt.want {
			t.Errorf("%v%s: %+v, want %q", tt.kind, tt.optional, r.Verdict, tt.want)
		}
	}
}
