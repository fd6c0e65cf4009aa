package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// usageCode is the exit code for input that is refused.
const usageCode = 64

// The commands that read a job, as typed in the directory of the file.
var (
	openPAIDoors  = []string{"pai convert FILE --user me", "pai convert FILE --user me --run-local worker --dir task", "explain --offline FILE --user me"}
	manifestDoors = []string{"inject -f FILE", "inject -w -f .", "inject --check -f FILE", "explain --offline FILE"}
)

// refusal is one kind of invalid input.
type refusal struct {
	name string

	// A file, the commands that refuse it, and their only sentence.
	file     string
	doors    []string
	sentence string

	// A pod in which a request at the webhook has the same fault, and its sentence. The sentence
	// names the field, because a request has no lines. Without a pod there is no such request: the
	// webhook reads neither OpenPAI jobs nor text.
	pod     string
	message string
}

// refusals are the kinds of invalid input that users produce.
func refusals(t *testing.T) []refusal {
	openPAI := func(old, with string) string {
		job, err := os.ReadFile("../stager/jobspec/pai/testdata/second.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(job, []byte(old)) {
			t.Fatalf("the job has no %q", old)
		}
		return strings.Replace(string(job), old, with, 1)
	}
	const (
		train    = "s3://b/train/ -> /data/train"
		save     = "/out -> s3://b/runs/{job}/"
		manifest = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: x\n  annotations:\n    stager.dev/in.train: \"" + train + "\"\nspec:\n  containers:\n  - name: main\n    image: x\n"
	)
	with := func(old, text string) string {
		if !strings.Contains(manifest, old) {
			t.Fatalf("the manifest has no %q", old)
		}
		return strings.Replace(manifest, old, text, 1)
	}
	pod := func(container string, annotations ...string) string {
		m := map[string]string{}
		for i := 0; i < len(annotations); i += 2 {
			m[annotations[i]] = annotations[i+1]
		}
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","labels":{"stager.dev/inject":"true"},"annotations":` + string(text) + `},"spec":{"containers":[{"name":"main","image":"x"` + container + `}]}}`
	}
	long := strings.Repeat("r", 300)
	plan := strings.Repeat("x", 2<<20)
	unknown := `train: "sise" is not known here; known are anyOrder, block, bundle, candidates, epochs, equalize, exclude, expand, groups, include, index, items, keys, layout, leaseTimeout, list, maxBytes, medium, minAge, minFree, minReady, mode, onBad, optional, order, over, parallel, release, reuse, secret, seed, size, unpack, verify, volume, within, write`
	return []refusal{
		{name: "unknown parameter of OpenPAI", file: openPAI("$parameters.epochs %> --task", "$parameters.epoch %> --task"), doors: openPAIDoors, sentence: "line 43, column 9: <% $parameters.epoch %> is not defined; define it"},
		{name: "cyclic reference", file: openPAI(`"run-<% $parameters.epochs %>"`, `"run-<% $parameters.out.name %>"`), doors: openPAIDoors, sentence: "line 8, column 34: references are nested more than 16 levels deep; remove the cycle"},
		{name: "missing secret", file: openPAI("  token: hunter2\n", ""), doors: openPAIDoors, sentence: "line 29, column 9: <% $secrets.token %> is not defined; define it"},
		{name: "unknown deployment", file: openPAI("deployment: production", "deployment: prod"), doors: openPAIDoors, sentence: `line 51, column 48: the deployment "prod" does not exist; the deployments are: production`},
		{name: "template of OpenPAI's tests", file: openPAI("name: digits_with_servers", "name: {{ name }}"), doors: openPAIDoors, sentence: "line 3, column 7: this is a template of another program; render {{…}} with that program first"},
		{name: "tab in an OpenPAI job", file: openPAI("  server:\n", "\tserver:\n"), doors: openPAIDoors, sentence: "line 23, column 1: this line is indented with a tab; use spaces"},
		{name: "OpenPAI job of 5 MB", file: openPAI("# A job", "# "+strings.Repeat("x", 5<<20)), doors: openPAIDoors, sentence: "the file has 5245199 bytes, and the limit is 3145728; move long scripts and data out of the job"},
		{name: "colliding ports of OpenPAI", file: `{"jobName": "j", "image": "i", "taskRoles": [{"name": "worker", "taskNumber": 1, "cpuNumber": 1, "memoryMB": 1024, "gpuNumber": 0, "command": "run",
  "portList": [{"label": "a", "beginAt": 8000, "portNumber": 10}, {"label": "b", "beginAt": 8005, "portNumber": 1}]}]}`, doors: openPAIDoors, sentence: "line 2, column 67: task role worker: the ports a and b both contain 8005; change one of them, or write beginAt: 0 to have any port"},
		{
			name: "unknown parameter", file: with(train, train+" ? sise=1Gi"), doors: manifestDoors, sentence: "line 6, column 58: Pod/x: " + unknown,
			pod:     pod("", "stager.dev/in.train", train+" ? sise=1Gi"),
			message: "422 stager: Pod/x: " + unknown,
		},
		{
			name: "template", file: with("image: x", "image: {{ .Values.image }}"), doors: manifestDoors, sentence: "line 10, column 12: {{ begins a template of another program; render the file first, for example with helm template",
			pod:     pod("", "stager.dev/in.train", "s3://{{ .Values.bucket }}/train/ -> /data/train"),
			message: "422 stager: Pod/x: stager.dev/in.train: source: {{ .Values.bucket }} is a template of another program; have that program fill it in first",
		},
		{
			name: "tab", file: with("  containers:", "\tcontainers:"), doors: manifestDoors, sentence: "line 8, column 1: this line is indented with a tab; use spaces",
			pod:     pod("", "stager.dev/in.train", "s3://b/train/\t-> /data/train"),
			message: `422 stager: Pod/x: train: "s3://b/train/\t-> /data/train" has no " -> "; write URL -> PATH ? key=value&key=value, as in s3://bucket/train/ -> /data/train ? mode=window&size=80Gi`,
		},
		{
			name: "5 MB", file: with("image: x", "image: [x\n#"+strings.Repeat("x", 5<<20)), doors: manifestDoors, sentence: "line 10, column 12: this [ is not closed",
			pod:     pod(`,"args":["`+strings.Repeat("x", 3<<20)+`"]`, "stager.dev/in.train", train),
			message: "413 the AdmissionReview is larger than 3 MiB; make the pod smaller, for example by a ConfigMap for long texts",
		},
		{
			name: "name of 300 characters", file: with("in.train", "in."+long), doors: manifestDoors, sentence: "line 6, column 321: Pod/x: the annotation stager.dev/in.rrrrrrr…rrrrrrrrrr has 303 characters after the /, and Kubernetes allows 63; use a shorter name",
			pod:     pod("", "stager.dev/in."+long, train),
			message: "422 stager: Pod/x: the annotation stager.dev/in.rrrrrrr…rrrrrrrrrr has 303 characters after the /, and Kubernetes allows 63; use a shorter name",
		},
		{
			name: "colliding ports", file: strings.Replace(with("image: x", "image: x\n    ports: [{containerPort: 9090}]"), "in.train: \""+train, "out.ckpt: \""+save, 1), doors: []string{"inject --pod-listen :9090 -f FILE"}, sentence: "line 11, column 29: Pod/x: container main has the port 9090, on which stager would listen (--pod-listen); containers of a pod share one address, so choose another port",
			pod:     pod(`,"ports":[{"containerPort":9090}]`, "stager.dev/out.ckpt", save),
			message: "422 stager: Pod/x: container main has the port 9090, on which stager would listen (--pod-listen); containers of a pod share one address, so choose another port",
		},
		{
			name: "two inputs for one path", file: with("spec:", "    stager.dev/in.val: \"s3://b/val/ -> /data/train\"\nspec:"), doors: manifestDoors, sentence: "line 7, column 24: Pod/x: stager.dev/in.val: path: /data/train and /data/train (stager.dev/in.train: path) contain each other; use separate directories",
			pod:     pod("", "stager.dev/in.train", train, "stager.dev/in.val", "s3://b/val/ -> /data/train"),
			message: "422 stager: Pod/x: stager.dev/in.val: path: /data/train and /data/train (stager.dev/in.train: path) contain each other; use separate directories",
		},
		{
			name: "plan of 2 MB", file: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: p}\ndata:\n  plan.yaml: \"" + plan + "\"\n---\n" + with("in.train: \""+train+"\"", "plan: \"configmap:p\""), doors: manifestDoors, sentence: "line 12, column 22: Pod/x: the plan has 2097152 bytes, and 102400 fit into a pod's environment",
			pod:     pod("", "stager.dev/plan-yaml", plan),
			message: "422 stager: Pod/x: the plan has 2097152 bytes, and 102400 fit into a pod's environment",
		},
	}
}

// Each kind of invalid input is refused at the command line and at the webhook with one sentence and
// the right code. No file is changed or created, and no output is printed.
func TestBadInputIsRefusedAtBothDoors(t *testing.T) {
	ask := startWebhook(t)
	for _, r := range refusals(t) {
		t.Run(r.name, func(t *testing.T) {
			for _, door := range r.doors {
				refusedByCommand(t, r, door)
			}
			if r.pod == "" {
				return
			}
			if got := ask(t, r.pod); got != r.message {
				t.Errorf("the webhook says\n%.600s\nwant\n%s", got, r.message)
			}
		})
	}
}

func refusedByCommand(t *testing.T, r refusal, door string) {
	t.Helper()
	dir := t.TempDir()
	const file, neighbour = "job.yaml", "a.yaml"
	good := "apiVersion: v1\nkind: Pod\nmetadata: {name: a, annotations: {stager.dev/in.x: \"s3://b/x/ -> /x\"}}\nspec: {containers: [{name: main, image: x}]}\n"
	before := map[string]string{file: r.file, neighbour: good}
	for name, text := range before {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), world.stager, strings.Fields(strings.ReplaceAll(door, "FILE", file))...)
	cmd.Dir = dir
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != usageCode {
		t.Errorf("stager %s: got %v, want exit code %d", door, err, usageCode)
	}
	if out.Len() > 0 {
		t.Errorf("stager %s prints %d bytes, want none:\n%.300s", door, out.Len(), &out)
	}
	if want := "stager: " + file + ":\n  " + r.sentence + "\n"; complaints.String() != want {
		t.Errorf("stager %s says\n%.600swant\n%s", door, &complaints, want)
	}
	after := map[string]string{}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		text, err := os.ReadFile(path)
		after[strings.TrimPrefix(path, dir+"/")] = string(text)
		return err
	})
	if err != nil || len(after) != len(before) || after[file] != before[file] || after[neighbour] != before[neighbour] {
		t.Errorf("stager %s leaves %d files, some changed, or %v; want %d unchanged", door, len(after), err, len(before))
	}
}

var reviewsAt = regexp.MustCompile(`reviews=(\S+)`)

// startWebhook starts the webhook without a cluster, and returns a function that asks it about the
// creation of a pod and returns the message with which it refuses.
func startWebhook(t *testing.T) (ask func(t *testing.T, pod string) string) {
	some := httptest.NewTLSServer(nil) // for its certificate
	t.Cleanup(some.Close)
	pair := some.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, block := range map[string]pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, "tls.key": {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, world.stager, "webhook", "--tls-dir", dir, "--no-config-maps", "--no-owners", "--no-namespaces",
		"--reviews", "127.0.0.1:0", "--probes", "127.0.0.1:0", "--pod-listen", ":9090")
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // killed
	})
	address := make(chan string, 1)
	go func() {
		var said bytes.Buffer
		buffer := make([]byte, 4096)
		for {
			n, err := log.Read(buffer)
			said.Write(buffer[:n])
			if m := reviewsAt.FindSubmatch(said.Bytes()); m != nil {
				address <- string(m[1])
				_, _ = io.Copy(io.Discard, log)
				return
			}
			if err != nil {
				address <- ""
				return
			}
		}
	}()
	at := <-address
	if at == "" {
		t.Fatal("the webhook ended at once")
	}
	pool := x509.NewCertPool()
	pool.AddCert(some.Certificate())
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "example.com"}}}
	return func(t *testing.T, pod string) string {
		t.Helper()
		body := fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","kind":{"group":"","version":"v1","kind":"Pod"},"namespace":"team","operation":"CREATE","object":%s}}`, pod)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+at+"/mutate", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusOK {
			return fmt.Sprintf("%d %s", resp.StatusCode, bytes.TrimSpace(text))
		}
		var review struct {
			Response struct {
				Allowed bool
				Patch   []byte
				Status  struct {
					Code    int
					Message string
				}
			}
		}
		if err := json.Unmarshal(text, &review); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		r := review.Response
		if r.Allowed || len(r.Patch) > 0 {
			t.Errorf("the pod is allowed, with a patch of %d bytes", len(r.Patch))
		}
		return fmt.Sprintf("%d %s", r.Status.Code, r.Status.Message)
	}
}
