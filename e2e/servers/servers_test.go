package servers

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/conformance/live"
)

func TestS3EndsWhenItIsClosed(t *testing.T) {
	s, err := StartS3(t.Context(), S3Options{TLS: true, Buckets: []string{"one", "two"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(s.Env(), " "); !strings.Contains(got, "AWS_CA_BUNDLE=") || !strings.HasPrefix(s.Endpoint, "https://") {
		t.Errorf("Env = %s at %s, want an authority and https", got, s.Endpoint)
	}
	pid := s.process.cmd.Process.Pid
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d is still there: %v", pid, err)
	}
}

func TestProxyGoesWrongAsOrdered(t *testing.T) {
	body := strings.Repeat("x", 1000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Forwarded-For") != "" {
			t.Error("the proxy adds headers")
		}
		w.Header().Set("X-Host", r.Host)
		_, _ = io.WriteString(w, body)
	}))
	defer server.Close()
	p, err := NewProxy(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	// On a connection that is used again the client itself would repeat what was reset.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func() string {
		res, err := client.Get(p.URL + "/k")
		if err != nil {
			return "no answer"
		}
		defer res.Body.Close()
		if host := res.Header.Get("X-Host"); res.StatusCode == http.StatusOK && "http://"+host != p.URL {
			t.Errorf("Host is %s, want the proxy's own %s, as it was signed", host, p.URL)
		}
		b, err := io.ReadAll(res.Body)
		return fmt.Sprint(res.StatusCode, " ", len(b), " ", err)
	}
	want := func(what, answer string) {
		t.Helper()
		if got := get(); got != answer {
			t.Errorf("%s: got %q, want %q", what, got, answer)
		}
	}
	const whole = "200 1000 <nil>"
	want("as it is", whole)
	p.SlowDown(1)
	want("slow down", "503 87 <nil>")
	want("after it", whole)
	p.Cut(1, 100)
	want("cut", "200 100 unexpected EOF")
	want("after it", whole)
	p.Reset(1)
	want("down or reset", "no answer")
	p.Down(true)
	want("down", "no answer")
	p.Down(false)
	p.Delay(time.Millisecond)
	want("up again, and late", whole)
	p.Delay(0)
	p.Drip(1, 10_000)
	began := time.Now()
	want("drip", whole)
	if took := time.Since(began); took < 90*time.Millisecond {
		t.Errorf("1,000 bytes drip for %v, want at least 90ms", took)
	}
	p.Hang(1)
	client.Timeout = 20 * time.Millisecond
	want("hang", "no answer")
	client.Timeout = 0
	p.Hang(1)
	p.SlowDown(1)
	p.Cut(1, 100)
	p.Down(true)
	p.Calm()
	want("calm", whole)
	if got := p.Counts()[Request{"GET", "/k"}]; got < 8 {
		t.Errorf("%d requests counted, want at least 8", got)
	}
	if got := p.Sent(); got != 6100 {
		t.Errorf("%d bytes sent, want 6,100", got)
	}
}

func TestHDFSEndsWhenItIsClosed(t *testing.T) {
	h, err := StartHDFS(t.Context(), HDFSOptions{})
	live.Require(t, "hdfs", err)
	if got := strings.Join(h.Env(), " "); !strings.Contains(got, "HADOOP_CONF_DIR="+h.ConfDir) {
		t.Errorf("Env = %s, want the configuration", got)
	}
	before := h.daemons["datanode"].cmd.Process.Pid
	if err := errors.Join(h.KillDaemon("datanode"), h.StartDaemon("datanode"), h.Ready(t.Context())); err != nil {
		t.Errorf("a DataNode that is killed and started: %v", err)
	}
	pids := []int{before}
	for _, p := range h.daemons {
		pids = append(pids, p.cmd.Process.Pid)
	}
	if err := h.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d is still there: %v", pid, err)
		}
	}
	if _, err := os.Stat(h.ConfDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory is left: %v", err)
	}
}
