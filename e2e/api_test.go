package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/stager-dev/stager/stager/api"
)

const apiDocument = "../docs/schema/openapi.json"

// contract is the description of the HTTP API, and what a test has called of it.
type contract struct {
	t        *testing.T
	compiler *jsonschema.Compiler
	paths    map[string]map[string]struct {
		Parameters []struct{ Name, In string }
		Responses  map[string]struct {
			Headers map[string]any
			Content map[string]map[string]any
		}
	}
	seen map[string]bool // "METHOD path code"
}

// readContract reads the description. Its objects are closed: a field that is not described fails.
func readContract(t *testing.T) *contract {
	t.Helper()
	text, err := os.ReadFile(apiDocument)
	if err != nil {
		t.Fatal(err)
	}
	c := &contract{t: t, compiler: jsonschema.NewCompiler(), seen: make(map[string]bool)}
	c.compiler.AssertFormat()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	named := document.(map[string]any)["components"].(map[string]any)["schemas"].(map[string]any)
	for _, schema := range named {
		schema.(map[string]any)["additionalProperties"] = false
	}
	var only struct{ Paths json.RawMessage }
	if err := errors.Join(c.compiler.AddResource("openapi.json", document), json.Unmarshal(text, &only)); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(only.Paths, &c.paths); err != nil {
		t.Fatal(err)
	}
	for name := range named {
		if _, err := c.compiler.Compile("openapi.json#/components/schemas/" + name); err != nil {
			t.Errorf("the schema of %s: %v", name, err)
		}
	}
	return c
}

// path returns the described path of a request, or "".
func (c *contract) path(of string) string {
	for path := range c.paths {
		pattern := "^" + regexp.MustCompile(`\\\{[a-z]+\\\}`).ReplaceAllString(regexp.QuoteMeta(path), "[^/]+") + "$"
		if regexp.MustCompile(pattern).MatchString(of) {
			return path
		}
	}
	return ""
}

// check compares a request and its response with the description.
func (c *contract) check(req *http.Request, resp *http.Response, text []byte) {
	c.t.Helper()
	path, method := c.path(req.URL.Path), strings.ToLower(req.Method)
	operation, known := c.paths[path][method]
	if !known {
		c.t.Errorf("%s %s is not described", req.Method, req.URL.Path)
		return
	}
	for name := range req.URL.Query() {
		if !slices.ContainsFunc(operation.Parameters, func(p struct{ Name, In string }) bool { return p.Name == name && p.In == "query" }) {
			c.t.Errorf("%s %s: the parameter %s is not described", req.Method, path, name)
		}
	}
	code := strconv.Itoa(resp.StatusCode)
	c.seen[req.Method+" "+path+" "+code] = true
	described, known := operation.Responses[code]
	if !known {
		c.t.Errorf("%s %s: the status %s is not described: %s", req.Method, path, code, text)
		return
	}
	for name := range resp.Header {
		if _, known := described.Headers[name]; !known && strings.HasPrefix(name, "Stager-") && name != "Stager-Api" {
			c.t.Errorf("%s %s %s: the header %s is not described", req.Method, path, code, name)
		}
	}
	if version := resp.Header.Get("Stager-Api"); version != "1" && resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden && resp.StatusCode != http.StatusMisdirectedRequest {
		c.t.Errorf("%s %s: got Stager-Api %q, want 1", req.Method, path, version)
	}
	if len(text) == 0 && len(described.Content) == 0 {
		return
	}
	media, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	for described, of := range described.Content {
		if plain, _, _ := strings.Cut(described, ";"); plain == media {
			if of["schema"] != nil {
				at := strings.NewReplacer("~", "~0", "/", "~1").Replace
				c.validate(fmt.Sprintf("openapi.json#/paths/%s/%s/responses/%s/content/%s/schema", at(path), method, code, at(described)), text)
			}
			return
		}
	}
	c.t.Errorf("%s %s %s: the type %q of the body is not described: %.200q", req.Method, path, code, media, text)
}

// validate validates each line of a body.
func (c *contract) validate(schema string, text []byte) {
	c.t.Helper()
	compiled, err := c.compiler.Compile(schema)
	if err != nil {
		c.t.Errorf("%s: %v", schema, err)
		return
	}
	for line := range bytes.Lines(text) {
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(line))
		if err == nil {
			err = compiled.Validate(value)
		}
		if err != nil {
			c.t.Errorf("%s\n%v", line, err)
		}
	}
}

// caller calls the API of one daemon.
type caller struct {
	*contract
	http http.Client
	base string
}

// call sends a request, checks the response and returns its status and body.
func (c *caller) call(method, path, body string, headers ...string) (int, []byte) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.base+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
		}
		req.Header.Set(name, value)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	c.check(req, resp, text)
	return resp.StatusCode, text
}

// want is call, and checks the status.
func (c *caller) want(code int, method, path, body string, headers ...string) []byte {
	c.t.Helper()
	got, text := c.call(method, path, body, headers...)
	if got != code {
		c.t.Errorf("%s %s: got %d %s, want %d", method, path, got, text, code)
	}
	return text
}

const apiPlan = `
apiVersion: stager.dev/v1alpha1
kind: StagePlan
metadata: {name: api}
spec:
  inputs:
  - name: train
    source: file://WORK/shards/
    path: WORK/win
    mode: window
    window: {size: 1Mi}
    order: {by: name, epochs: 2}
  - name: files
    source: file://WORK/shards/
    path: WORK/files
    mode: window
    window: {size: 1Mi, release: unlink}
    order: {by: name, epochs: 1}
  - name: model
    source: file://WORK/shards/
    path: WORK/model
  outputs:
  - name: ckpt
    path: WORK/out
    destination: file://WORK/saved/
`

// startAPI starts a daemon and returns callers of its socket and of its port.
func startAPI(t *testing.T, c *contract) (work string, socket, port *caller) {
	t.Helper()
	work, err := os.MkdirTemp("", "api-") // a short path, for the socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(work) })
	write := func(name, text string) {
		path := filepath.Join(work, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("plan.yaml", strings.ReplaceAll(apiPlan, "WORK", work))
	write("token", "secret\n")
	for i := range 3 {
		write(fmt.Sprintf("shards/%d.tar", i), strings.Repeat("x", 1024))
	}
	write("out/step-1/model", "weights")
	if err := os.Mkdir(filepath.Join(work, "saved"), 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(work, "s")
	log, err := os.Create(filepath.Join(work, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(world.stager, "run", "-f", filepath.Join(work, "plan.yaml"), "--socket", path, "--listen", "127.0.0.1:0", "--token-file", filepath.Join(work, "token"), "--log-format", "json")
	cmd.Stderr, cmd.SysProcAttr = log, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		if err := cmd.Wait(); err != nil {
			text, _ := os.ReadFile(log.Name())
			t.Errorf("stager run: %v\n%s", err, text)
		}
	})
	for until := time.Now().Add(patience); exec.Command(world.stager, "status", "--ready", "--socket", path).Run() != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("the daemon is not ready\n%s", text)
		}
	}
	text, err := os.ReadFile(log.Name())
	found := regexp.MustCompile(`"API listening on a port[^\n]*"address":"([0-9.:]+)"`).FindSubmatch(text)
	if err != nil || found == nil {
		t.Fatalf("no port in the log: %v\n%s", err, text)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	socket = &caller{contract: c, base: "http://stager", http: http.Client{Transport: &http.Transport{DialContext: dial}}}
	port = &caller{contract: c, base: "http://" + string(found[1]), http: http.Client{Transport: &http.Transport{}}}
	t.Cleanup(socket.http.CloseIdleConnections)
	t.Cleanup(port.http.CloseIdleConnections)
	return work, socket, port
}

// Every operation of a real daemon, with good and bad requests, responds as the description says.
func TestDaemonMatchesOpenAPI(t *testing.T) {
	t.Parallel()
	c := readContract(t)
	work, s, port := startAPI(t, c)

	s.want(200, "GET", "/healthz", "")
	s.want(200, "GET", "/readyz", "")
	s.want(200, "GET", "/metrics", "")
	s.want(200, "GET", "/v1/status", "")
	readShards(s)
	rewindInput(s)
	saveOutput(s, work)
	usePort(port)
	s.want(400, "POST", "/v1/save?code=x", "")
	s.want(200, "POST", "/v1/save?code=0", "")
	s.want(400, "POST", "/v1/drain?deadline=x", "")
	s.want(202, "POST", "/v1/drain?deadline=20s", "")
	s.want(200, "GET", "/v1/status", "")

	for path, operations := range c.paths {
		for method := range operations {
			called := strings.ToUpper(method) + " " + path + " 20"
			if !c.seen[called+"0"] && !c.seen[called+"2"] && !c.seen[called+"4"] {
				t.Errorf("%s %s was not called with success", method, path)
			}
		}
	}
}

// readShards leases, reads and ends shards.
func readShards(s *caller) {
	s.t.Helper()
	lease := func(query string) (l api.LeaseResponse) {
		s.t.Helper()
		if err := json.Unmarshal(s.want(200, "POST", "/v1/inputs/train/lease?"+query, ""), &l); err != nil {
			s.t.Fatal(err)
		}
		return l
	}
	first := lease("reader=a&epoch=0&mixes=false&end=all")
	s.want(200, "GET", "/v1/inputs/train", "") // with a reader
	s.want(204, "POST", "/v1/leases/"+first.Lease+"/renew", "")
	s.want(204, "POST", "/v1/leases/"+first.Lease+"/return", "")
	s.want(410, "POST", "/v1/leases/"+first.Lease+"/ack", "")
	first = lease("reader=a")
	s.want(204, "POST", "/v1/leases/"+first.Lease+"/ack", "")
	second := lease("reader=a")
	s.want(204, "POST", "/v1/nack?path="+second.Path+"&reason=torn", "")
	s.want(410, "POST", "/v1/nack?path="+second.Path, "")
	second = lease("reader=a")
	s.want(204, "POST", "/v1/ack?path="+second.Path, "")
	third := lease("reader=a")
	s.want(204, "POST", "/v1/inputs/train/lease?reader=b&epoch=0&wait=1ms", "") // a holds it
	s.want(204, "POST", "/v1/leases/"+third.Lease+"/ack", "")
	if end := lease("reader=a&epoch=0"); !end.End {
		s.t.Errorf("got %+v, want the end of the epoch", end)
	}
	for range 4 { // the second epoch, and its end
		s.want(200, "GET", "/v1/inputs/train/next?reader=stream", "")
	}
	for _, what := range []string{"plan", "report", "quality"} {
		s.want(200, "GET", "/v1/inputs/train/"+what+"?epoch=0", "")
		s.want(400, "GET", "/v1/inputs/train/"+what+"?epoch=9", "")
		s.want(404, "GET", "/v1/inputs/none/"+what, "")
	}
	s.want(404, "GET", "/v1/inputs/files/report", "")
	s.want(409, "POST", "/v1/inputs/files/lease", "")
	s.want(409, "GET", "/v1/inputs/files/next", "")
	s.want(404, "GET", "/v1/inputs/none", "")
	s.want(404, "POST", "/v1/inputs/none/lease", "")
	s.want(400, "POST", "/v1/inputs/train/lease?wait=long", "")
	s.want(400, "GET", "/v1/inputs/train/next?mixes=maybe", "")
	s.want(400, "POST", "/v1/leases/x/renew", "", "Stager-Bind: process")
	s.want(404, "POST", "/v1/leases/x/keep", "")
	s.want(400, "POST", "/v1/ack?path=x&group=y", "")
}

// rewindInput reads a cursor and continues from it.
func rewindInput(s *caller) {
	s.t.Helper()
	cursor := string(s.want(200, "GET", "/v1/inputs/train/cursor", ""))
	s.want(200, "PUT", "/v1/inputs/train/cursor", cursor)
	s.want(200, "PUT", "/v1/inputs/train/cursor", "["+cursor+"]")
	s.want(400, "PUT", "/v1/inputs/train/cursor", "{")
	s.want(422, "PUT", "/v1/inputs/train/cursor", `{"manifest": "another", "part": "0/1", "epoch": 0}`)
	s.want(404, "PUT", "/v1/inputs/none/cursor", cursor)
	s.want(404, "GET", "/v1/inputs/none/cursor", "")
}

// saveOutput commits a checkpoint.
func saveOutput(s *caller, work string) {
	s.t.Helper()
	order := fmt.Sprintf(`{"path": %q, "samplesSeen": 3}`, filepath.Join(work, "out", "step-1"))
	s.want(200, "POST", "/v1/outputs/ckpt/commit?wait=30s", order)
	s.want(202, "POST", "/v1/outputs/ckpt/commit", order)
	s.want(400, "POST", "/v1/outputs/ckpt/commit", `{"dir": "x"}`)
	s.want(413, "POST", "/v1/outputs/ckpt/commit", strings.Repeat(" ", 40<<10))
	s.want(422, "POST", "/v1/outputs/ckpt/commit", `{"path": "/elsewhere/step-2"}`)
	s.want(404, "POST", "/v1/outputs/none/commit", order)
	s.want(200, "GET", "/v1/outputs/ckpt", "")
	s.want(404, "GET", "/v1/outputs/none", "")
	s.want(400, "POST", "/v1/restored?source=x", "")
	s.want(200, "POST", "/v1/restored?source=file://"+work+"/saved/&job=j&agreement=1", "")
}

// usePort calls what a port refuses.
func usePort(p *caller) {
	p.t.Helper()
	p.want(200, "GET", "/v1/status", "")
	p.want(401, "POST", "/v1/drain", "")
	p.want(401, "GET", "/v1/inputs/train/next", "", "Authorization: Bearer wrong")
	p.want(410, "POST", "/v1/leases/none/ack", "", "Authorization: Bearer secret")
	p.want(421, "GET", "/v1/status", "", "Host: page.example")
}

// pythonCall finds the paths in the Python client.
var pythonCall = regexp.MustCompile(`f?"(/(?:v1|healthz|readyz|metrics)[^"]*)"`)

// The paths and methods that the Python client uses are described.
func TestOpenAPIHasWhatPythonCalls(t *testing.T) {
	t.Parallel()
	c := readContract(t)
	files, err := filepath.Glob("../python/stager/*.py")
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			found := pythonCall.FindStringSubmatch(line)
			if found == nil {
				continue
			}
			calls++
			path := c.path(regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(found[1], "x"))
			if path == "" {
				t.Errorf("%s: %s is not described", file, found[1])
			}
			for _, method := range regexp.MustCompile(`"(GET|POST|PUT|DELETE|PATCH)"`).FindAllStringSubmatch(line, -1) {
				if _, known := c.paths[path][strings.ToLower(method[1])]; !known {
					t.Errorf("%s: %s %s is not described", file, method[1], path)
				}
			}
		}
	}
	if calls < 10 {
		t.Errorf("found %d calls in the Python client, want at least 10", calls)
	}
}
