package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
	"github.com/stager-dev/stager/stager/checkpoint"
)

// guarded lists the requests that need a token on a port.
var guarded = []string{
	"POST /v1/inputs/train/lease", "GET /v1/inputs/train/next", "POST /v1/leases/x/ack", "POST /v1/leases/x/nack",
	"POST /v1/leases/x/renew", "POST /v1/ack?path=x", "POST /v1/nack?path=x", "POST /v1/outputs/o/commit", "POST /v1/drain", "POST /v1/save", "POST /v1/restored?source=s&job=j&agreement=1",
	"HEAD /v1/inputs/train/next",
}

var open = []string{"GET /v1/status", "GET /v1/inputs/train", "GET /healthz", "GET /readyz", "GET /v1/outputs/o"}

func TestPortNeedsAToken(t *testing.T) {
	h := newHouse(t, 9, 10)
	h.waitIdle(h.win.Ready)
	code := func(handler http.Handler, call, header string) int {
		method, path, _ := strings.Cut(call, " ")
		r := httptest.NewRequest(method, path, http.NoBody)
		if header != "" {
			r.Header.Set("Authorization", header)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if got, want := w.Header().Get(versionHeader), version; got != want {
			t.Errorf("%s: got %q in %s, want %q", call, got, versionHeader, want)
		}
		return w.Code
	}
	port, silent := h.api.Guarded("s3cret", "example.com"), h.api.Guarded("", "example.com")
	for _, call := range guarded {
		for _, header := range []string{"", "Bearer", "Bearer ", "Bearer wrong", "s3cret", "Bearer s3cret ", "Basic s3cret"} {
			if got := code(port, call, header); got != http.StatusUnauthorized {
				t.Errorf("%s with %q: got %d, want 401", call, header, got)
			}
		}
		for _, header := range []string{"", "Bearer ", "Bearer s3cret"} {
			if got := code(silent, call, header); got != http.StatusForbidden {
				t.Errorf("%s with %q and no token: got %d, want 403", call, header, got)
			}
		}
		if got := code(port, call, "Bearer s3cret"); got == http.StatusUnauthorized || got == http.StatusForbidden {
			t.Errorf("%s with the token: got %d", call, got)
		}
	}
	for _, call := range open {
		if got := code(silent, call, ""); got == http.StatusUnauthorized || got == http.StatusForbidden {
			t.Errorf("%s without a token: got %d", call, got)
		}
	}
	if got := code(silent, "GET /v1/inputs/train/%6eext", ""); got != http.StatusForbidden {
		t.Errorf("next written otherwise: got %d", got)
	}
}

// Over TCP the kernel accepts bytes for a reader that may never read them. After a reset connection
// the reader's next request must not acknowledge the shard.
func TestNextOnAPort(t *testing.T) {
	h := newHouse(t, 2, 100)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(h.api.Guarded("t", "s"), Limits{}, nil)
	go server.Serve(l) //nolint:errcheck // stopped below
	defer server.Close()
	dial := func() *client {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return &client{t: t, conn: conn, in: bufio.NewReaderSize(conn, 16)}
	}
	const auth = "Authorization: Bearer t"
	c := dial()
	c.send("GET", next, auth)
	var first *tracked // the connection on which the shard was sent
	h.waitIdle(func() bool {
		st, err := h.api.streams.enter(t.Context(), "train/a")
		if err != nil {
			t.Fatal(err)
		}
		defer h.api.streams.leave(st)
		first = st.conn
		return st.lease != ""
	})
	c.conn.Close() // with all of it unread
	h.waitIdle(first.wasReset)
	resp, _ := dial().want(200, "GET", next, auth)
	if got := resp.Header.Get("Stager-Attempt"); got != "2" {
		t.Errorf("attempt %s, want 2", got)
	}
	resp, _ = dial().want(200, "GET", next, auth)
	if got := resp.Header.Get("Stager-Position"); got != "1" {
		t.Errorf("position %s, want 1: the one before was taken", got)
	}
	if got := h.win.Status().Acknowledged; got != 1 {
		t.Errorf("%d acknowledged, want 1", got)
	}
}

func TestDrainAndProbes(t *testing.T) {
	h := newHouse(t, 1, 10)
	var asked []time.Duration
	h.api.Drain = func(d time.Duration) { asked = append(asked, d) }
	handler := h.api.Handler()
	call := func(method, path, body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
		return w
	}
	for path, want := range map[string]int{
		"/v1/drain?deadline=90s": 202, "/v1/drain?deadline=-1s": 400, "/v1/drain?deadline=soon": 400, "/v1/drain?deadline=5": 400,
	} {
		if got := call("POST", path, ""); got.Code != want {
			t.Errorf("%s: got %d %s, want %d", path, got.Code, got.Body, want)
		}
	}
	if len(asked) != 1 || asked[0] != 90*time.Second {
		t.Errorf("drained with %v, want 90s", asked)
	}
	h.waitIdle(h.win.Ready)
	for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": "ready\n"} {
		if got := call("GET", path, ""); got.Code != 200 || got.Body.String() != want {
			t.Errorf("%s: got %d %q, want %q", path, got.Code, got.Body, want)
		}
	}
}

func TestCommit(t *testing.T) {
	h := newHouse(t, 1, 10)
	dir := t.TempDir()
	store := backends.NewStore(mem.New(), "mem://b", backends.Options{})
	u, err := checkpoint.New(checkpoint.Config{Output: "ckpt", Dir: dir, Store: store})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	for name, text := range map[string]string{"step-7/model.pt": "m", "step-8/model.pt": "n"} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	h.api.Uploader = func(name string) (*checkpoint.Uploader, error) {
		switch name {
		case "ckpt":
			return u, nil
		case "soon":
			return nil, ErrNotYet
		}
		return nil, ErrUnknown
	}
	handler := h.api.Handler()
	call := func(method, path string, body io.Reader) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(method, path, body))
		return w
	}
	for _, tt := range []struct {
		path, body string
		want       int
	}{
		{"ckpt/commit", `{"path":"step-7"}`, 202},
		{"ckpt/commit", `{"path":"step-7","step":7,"samplesSeen":3}` + "\n", 202},
		{"ckpt/commit?wait=1ms", `{"path":"step-7"}`, 202},
		{"ckpt/commit?wait=x", `{"path":"step-7"}`, 400},
		{"ckpt/commit", `{"path":"step-7","epoch":1}`, 400},
		{"ckpt/commit", `{"path":"step-7"}{}`, 400},
		{"ckpt/commit", `{"path":"step-7"} and more`, 400},
		{"ckpt/commit", `{"path":"step-7","step":-1}`, 400},
		{"ckpt/commit", `{"path":"step-7","step":1.5}`, 400},
		{"ckpt/commit", `{}`, 400},
		{"ckpt/commit", ``, 400},
		{"ckpt/commit", `[]`, 400},
		{"ckpt/commit", `{"path":"` + strings.Repeat("x", longestBody) + `"}`, 413},
		{"ckpt/commit", `{"path":"step-9"}`, 422},
		{"ckpt/commit", `{"path":"../../etc"}`, 422},
		{"ckpt/commit", `{"path":"/etc"}`, 422},
		{"nope/commit", `{"path":"step-7"}`, 404},
		{"soon/commit", `{"path":"step-7"}`, 503},
	} {
		if got := call("POST", "/v1/outputs/"+tt.path, strings.NewReader(tt.body)); got.Code != tt.want {
			t.Errorf("%s %.60s: got %d %s, want %d", tt.path, tt.body, got.Code, got.Body, tt.want)
		}
	}
	if got := call("GET", "/v1/outputs/ckpt", nil); got.Code != 200 || !bytes.Contains(got.Body.Bytes(), []byte(`"pending":[7]`)) {
		t.Errorf("got %d %s", got.Code, got.Body)
	}
	saved := make(chan *httptest.ResponseRecorder)
	go func() {
		saved <- call("POST", "/v1/outputs/ckpt/commit?wait=1m", strings.NewReader(`{"path":"step-8"}`))
	}()
	h.waitIdle(func() bool { return len(u.Status().Pending) == 2 })
	if err := u.Drain(t.Context(), checkpoint.Exit{}); err != nil {
		t.Fatal(err)
	}
	if got := <-saved; got.Code != 200 {
		t.Errorf("when it is saved: got %d %s", got.Code, got.Body)
	}
}

// A trainer overwrote a file in place after its commit was accepted. The response was 500, and
// stager commit --wait exited with 70, as for an error in stager.
func TestCommitReportsChangedFiles(t *testing.T) {
	h := newHouse(t, 1, 10)
	dir := t.TempDir()
	u, err := checkpoint.New(checkpoint.Config{Output: "ckpt", Dir: dir, Store: backends.NewStore(mem.New(), "mem://b", backends.Options{})})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "last"), 0o755), os.WriteFile(filepath.Join(dir, "last/model.pt"), []byte("before"), 0o644)); err != nil {
		t.Fatal(err)
	}
	h.api.Uploader = func(string) (*checkpoint.Uploader, error) { return u, nil }
	answered := make(chan *httptest.ResponseRecorder)
	go func() {
		w := httptest.NewRecorder()
		h.api.Handler().ServeHTTP(w, httptest.NewRequest("POST", "/v1/outputs/ckpt/commit?wait=5m", strings.NewReader(`{"path":"last","step":7}`)))
		answered <- w
	}()
	h.waitIdle(func() bool { return len(u.Status().Pending) == 1 })
	held, err := filepath.Glob(filepath.Join(dir, ".stager/*/*/data/model.pt")) // a second name of the file
	if err != nil || len(held) != 1 {
		t.Fatalf("got held files %q, %v; want one", held, err)
	}
	if err := os.WriteFile(held[0], []byte("overwritten"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := u.Drain(t.Context(), checkpoint.Exit{}); err == nil {
		t.Error("got no error of the end, want one that names what is not saved")
	}
	got := <-answered
	if got.Code != http.StatusConflict || !strings.Contains(got.Body.String(), "commit it again when it is complete") {
		t.Errorf("got %d %s, want 409 and what to do", got.Code, got.Body)
	}
}

// The container's wrapper waits for the response to save, so each status has one meaning: 200 safe,
// 503 retry, 500 not safe.
func TestSave(t *testing.T) {
	h := newHouse(t, 1, 10)
	var saves error
	var codes []int
	h.api.Save = func(_ context.Context, code int) error {
		codes = append(codes, code)
		return saves
	}
	handler := h.api.Handler()
	for _, tt := range []struct {
		path  string
		saves error
		want  int
	}{
		{"/v1/save", nil, 200},
		{"/v1/save?code=7", nil, 200},
		{"/v1/save?code=0", fmt.Errorf("output ckpt: %w", ErrNotYet), 503},
		{"/v1/save?code=1", errors.New("step 3 is not safe"), 500},
		{"/v1/save?code=-1", nil, 400},
		{"/v1/save?code=256", nil, 400},
		{"/v1/save?code=none", nil, 400},
	} {
		saves = tt.saves
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("POST", tt.path, nil))
		if w.Code != tt.want {
			t.Errorf("%s: got %d %s, want %d", tt.path, w.Code, w.Body, tt.want)
		}
	}
	if want := []int{0, 7, 0, 1}; !slices.Equal(codes, want) {
		t.Errorf("got the codes %v, want %v", codes, want)
	}
}

func TestRestoredIsForwarded(t *testing.T) {
	h := newHouse(t, 1, 10)
	var result error
	var got []string
	h.api.Restored = func(source, job string, agreement int) error {
		got = append(got, fmt.Sprint(source, " ", job, " ", agreement))
		return result
	}
	handler := h.api.Handler()
	for _, tt := range []struct {
		query  string
		result error
		want   int
	}{
		{"?source=s3://b/ckpt/&job=j&agreement=3", nil, 200},
		{"?source=s3://b/ckpt/&job=j&agreement=4", fmt.Errorf("output ckpt: %w", ErrNotYet), 503},
		{"?source=s3://b/ckpt/&job=j&agreement=5", errors.New("the volume is full"), 500},
		{"", nil, 400},
		{"?source=s3://b/ckpt/&agreement=1", nil, 400},
		{"?job=j&agreement=1", nil, 400},
		{"?source=s3://b/ckpt/&job=j&agreement=0", nil, 400},
		{"?source=s3://b/ckpt/&job=j&agreement=one", nil, 400},
	} {
		result = tt.result
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("POST", "/v1/restored"+tt.query, nil))
		if w.Code != tt.want {
			t.Errorf("%s: got %d %s, want %d", tt.query, w.Code, w.Body, tt.want)
		}
	}
	if want := []string{"s3://b/ckpt/ j 3", "s3://b/ckpt/ j 4", "s3://b/ckpt/ j 5"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Without room a commit is refused with a status that allows a retry.
func TestCommitWithoutSpaceIsRetried(t *testing.T) {
	code := codeForCommit(backends.Errorf(backends.NoSpace, "hold", "last.pt", "no space"))
	if code != http.StatusInsufficientStorage {
		t.Errorf("got %d, want 507", code)
	}
}
