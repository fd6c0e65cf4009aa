package preemption

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestTextsAreRead(t *testing.T) {
	at := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	for text, want := range map[string]struct {
		came bool
		at   time.Time
	}{
		`{"action": "terminate", "time": "2026-05-04T03:02:01Z"}`: {true, at}, // AWS
		"2026-05-04T03:02:01Z\n":                                  {true, at}, // Alibaba Cloud
		"TRUE":                                                    {true, time.Time{}},
		"FALSE":                                                   {false, time.Time{}}, // Google
		`{"DocumentIncarnation": 1, "Events": []}`: {false, time.Time{}},
		"":               {false, time.Time{}},
		"<html>a proxy":  {false, time.Time{}},
		`{"action":"x"}`: {true, time.Time{}},
	} {
		if came, when := read([]byte(text)); came != want.came || !when.Equal(want.at) {
			t.Errorf("%q: got %t %v, want %t %v", text, came, when, want.came, want.at)
		}
	}
}

func TestSourcesAreStrict(t *testing.T) {
	for source, ok := range map[string]bool{
		"/run/notice": true, "http://169.254.169.254/latest/meta-data/spot/instance-action": true, "https://x/y": true,
		"": false, "notice": false, "ftp://x/y": false, "http://user:word@x/y": false, "http:///y": false,
	} {
		if err := Check(source); (err == nil) != ok {
			t.Errorf("%q: got %v, want it taken: %t", source, err, ok)
		}
	}
}

// A poll may meet the notice at any moment while it is written. The time in it is used whatever was
// there at the poll before: an empty file was once a notice without a time.
func TestNoticeFile(t *testing.T) {
	dir := t.TempDir()
	for name, tt := range map[string]struct {
		text  func(at time.Time) string
		polls int // after the first one that finds the whole text
		timed bool
	}{
		"time":        {func(at time.Time) string { return at.Format(time.RFC3339) }, 0, true},
		"time, line":  {func(at time.Time) string { return at.Format(time.RFC3339) + "\n" }, 0, true},
		"action":      {func(at time.Time) string { return `{"action":"stop","time":"` + at.Format(time.RFC3339) + `"}` }, 0, true},
		"action only": {func(time.Time) string { return `{"action":"stop"}` }, 0, false},
		"true":        {func(time.Time) string { return "TRUE" }, 0, false},
		"empty":       {func(time.Time) string { return "" }, 1, false},
		"other text":  {func(time.Time) string { return "the machine goes down" }, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			end := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
			text := tt.text(end)
			for written := range len(text) + 1 { // so much of it is there at the first poll
				file := filepath.Join(dir, "notice")
				w := &watcher{source: file}
				if came, _, err := w.check(t.Context()); came || err != nil {
					t.Fatalf("%s: without a file got %t (%v), want no notice", name, came, err)
				}
				var at time.Time
				polls := 0
				for came := false; !came; polls++ {
					if polls == 1 {
						written = len(text)
					}
					if polls > 5 {
						t.Fatalf("%s, %d bytes at first: got no notice in %d polls, want one", name, written, polls)
					}
					if err := os.WriteFile(file, []byte(text[:written]), 0o600); err != nil {
						t.Fatal(err)
					}
					var err error
					if came, at, err = w.check(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if most := tt.polls + 2; polls > most || tt.timed != at.Equal(end) {
					t.Errorf("%s, %d bytes at first: got %v after %d polls, want %v: %t, after at most %d", name, written, at, polls, end, tt.timed, most)
				}
				if err := os.Remove(file); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestWaitReturnsTheTimeLeft(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		name := filepath.Join(dir, "notice")
		time.AfterFunc(time.Minute+every/2, func() { // between two polls
			if err := os.WriteFile(name, []byte(time.Now().Add(2*time.Minute).Format(time.RFC3339)), 0o600); err != nil {
				t.Error(err)
			}
		})
		start := time.Now()
		left, err := Wait(t.Context(), name, slog.New(slog.DiscardHandler))
		if took := time.Since(start); err != nil || took > time.Minute+every || left < 2*time.Minute-every || left > 2*time.Minute {
			t.Errorf("got %v (%v) after %v, want 2m within %v of one minute", left, err, took, every)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := Wait(ctx, filepath.Join(dir, "none"), slog.New(slog.DiscardHandler)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a notice got %v, want the end of the context", err)
		}
	})
}

// What cannot be polled is logged once, not every few seconds.
func TestWaitLogsOnceWhatItCannotPoll(t *testing.T) {
	dir := t.TempDir() // no notice
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := Wait(ctx, dir, slog.New(slog.NewTextHandler(&said, nil))); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the end of the context", err)
		}
		if got := strings.Count(said.String(), `level=WARN msg="cannot poll for preemption notice, retrying"`); got != 1 {
			t.Errorf("got %d warnings in %q, want 1", got, said.String())
		}
	})
}

// A cloud's service requires a token, refuses an old one, and responds with 404 until there is a
// notice.
func TestNoticeURLIsPolledAsCloudsRequire(t *testing.T) {
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPut && r.URL.Path == "/latest/api/token" && r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds") != "":
			_, _ = io.WriteString(w, "the-token")
		case r.Header.Get("X-aws-ec2-metadata-token") != "the-token":
			w.WriteHeader(http.StatusUnauthorized)
		case asked.Add(1) < 2:
			w.WriteHeader(http.StatusNotFound)
		default:
			_, _ = io.WriteString(w, `{"action": "terminate", "time": "`+time.Now().Add(time.Hour).Format(time.RFC3339)+`"}`)
		}
	}))
	defer s.Close()
	w := &watcher{source: s.URL + "/latest/meta-data/spot/instance-action", client: s.Client(), token: "old", until: time.Now().Add(time.Hour)}
	for _, want := range []struct {
		came  bool
		words string
	}{{false, "401"}, {false, ""}, {true, ""}} {
		came, at, err := w.check(t.Context())
		said := ""
		if err != nil {
			said = err.Error()
		}
		if came != want.came || !strings.Contains(said, want.words) || want.words == "" && err != nil || came == at.IsZero() {
			t.Errorf("got %t %v %v, want %+v", came, at, err, want)
		}
	}
}

// The notice file was in a directory where others may write. A FIFO in its place blocked the watch
// for ever, and an endless file filled the memory.
func TestWaitReadsABoundedRegularFile(t *testing.T) {
	dir := t.TempDir()
	fifo, hole := filepath.Join(dir, "fifo"), filepath.Join(dir, "hole")
	if err := errors.Join(syscall.Mkfifo(fifo, 0o666), os.WriteFile(hole, nil, 0o600), os.Truncate(hole, 1<<40)); err != nil {
		t.Fatal(err)
	}
	w := &watcher{source: fifo}
	if came, _, err := w.check(t.Context()); came || err == nil {
		t.Errorf("a FIFO: got %v, %v; want an error", came, err)
	}
	w.source = hole
	for _, want := range []bool{false, true} { // the second poll finds it unchanged
		if came, at, err := w.check(t.Context()); came != want || !at.IsZero() || err != nil {
			t.Errorf("a hole: got %t, %v, %v; want %t, without a time", came, at, err, want)
		}
	}
}
