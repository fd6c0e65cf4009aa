package backends_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/mem"
)

// outages returns what a log says about outages: "away" or "back" with the duration.
func outages(log *bytes.Buffer) (lines []string) {
	for line := range strings.Lines(log.String()) {
		switch _, away, back := strings.Cut(line, " away="); {
		case back:
			lines = append(lines, "back "+strings.TrimSpace(away))
		case strings.Contains(line, "store request failed, retrying"):
			lines = append(lines, "away")
		}
	}
	return lines
}

func logTo(log io.Writer) *slog.Logger {
	drop := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	return slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{ReplaceAttr: drop}))
}

// Thirty streams that broke at once logged thirty failures, and no line reported the recovery.
func TestOutageIsTwoLinesOfTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(bytes.Buffer)
		b := newBench(backends.Options{Connections: 30, Log: logTo(log)})
		b.faults.Always(conformance.Stat, conformance.Fail(backends.Unavailable))
		var all sync.WaitGroup
		for i := range 30 {
			key := fmt.Sprint(i)
			b.mem.Generate(key, 1)
			store := b.Sub("")
			all.Go(func() {
				if _, err := store.Stat(t.Context(), key); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(10 * time.Second)
		b.faults.Always(conformance.Stat, conformance.Pass())
		all.Wait()
		got := outages(log)
		if len(got) != 2 || got[0] != "away" || !afterTen(got[1]) {
			t.Errorf("the log says %q, want away once and back once after more than 10s", got)
		}
		if _, err := b.Stat(t.Context(), "0"); err != nil || len(outages(log)) != 2 {
			t.Errorf("after it: %v, and the log says %q", err, outages(log))
		}
	})
}

// After a server had died, buffered bytes still arrived at open streams for a moment: thirty log
// lines reported failures.
func TestOutageIgnoresBufferedResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mem.New()
		dripping, obj := slowBytes{m, 450 * time.Millisecond}, m.Generate("drips", 10)
		faults := new(conformance.Faults)
		log := new(bytes.Buffer)
		b := backends.NewStore(faults.Wrap(dripping), "mem://test", backends.Options{Connections: 40, Log: logTo(log)})
		faults.Always(conformance.Stat, conformance.Fail(backends.Unavailable))
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := b.ReadRange(t.Context(), obj, 0, 10, buffer(make([]byte, 10)), nil); err != nil {
				t.Error(err)
			}
		})
		for i := range 30 {
			key := fmt.Sprint(i)
			m.Generate(key, 1)
			all.Go(func() {
				if _, err := b.Stat(t.Context(), key); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(10 * time.Second)
		faults.Always(conformance.Stat, conformance.Pass())
		all.Wait()
		if got := outages(log); len(got) != 2 || got[0] != "away" || !afterTen(got[1]) {
			t.Errorf("the log says %q, want away once and back once", got)
		}
	})
}

// afterTen reports whether a line logs a recovery after about 10 s. The request that detected the
// outage may have started a moment later, and had to wait before its retry.
func afterTen(line string) bool {
	away, err := time.ParseDuration(strings.TrimPrefix(line, "back "))
	return err == nil && away >= 9*time.Second && away < 20*time.Second
}

// Protocols that create a file without a request continued to do so while the server was away,
// which looked like responses.
func TestOutageIgnoresUnsolicitedResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(bytes.Buffer)
		b := newBench(backends.Options{Connections: 50, Log: logTo(log)})
		b.faults.Always(conformance.Commit, conformance.Fail(backends.Unavailable))
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 20 * time.Millisecond)
				if _, err := b.PutBytes(t.Context(), fmt.Sprint(i), []byte("x"), backends.CreateOptions{}); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(10 * time.Second)
		b.faults.Always(conformance.Commit, conformance.Pass())
		all.Wait()
		if got := outages(log); len(got) != 2 || got[0] != "away" || !afterTen(got[1]) {
			t.Errorf("the log says %q, want away once and back once", got)
		}
	})
}

// One unreadable object is logged but is not an outage: the others can be read.
func TestOutageNeedsMoreThanOneFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(bytes.Buffer)
		b := newBench(backends.Options{RetryFor: 20 * time.Second, Log: logTo(log)})
		b.faults.Always(conformance.Stat, conformance.Fail(backends.Unavailable))
		obj := b.mem.Generate("good", 1)
		ctx, cancel := context.WithCancel(t.Context())
		var others sync.WaitGroup
		others.Go(func() {
			for ctx.Err() == nil {
				_, _ = b.ReadRange(ctx, obj, 0, 1, buffer(make([]byte, 1)), nil)
				time.Sleep(10 * time.Millisecond)
			}
		})
		if _, err := b.Stat(t.Context(), "bad"); err == nil {
			t.Error("it was read")
		}
		cancel()
		others.Wait()
		if got := outages(log); len(got) != 1 || got[0] != "away" {
			t.Errorf("the log says %q, want the one failure", got)
		}
	})
}

// lockedBuffer is a log that is read while others write to it.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// A server responded with 500 to a DELETE that it can never carry out. It was retried for two
// minutes without a line in the log.
func TestDeleteGivesUpAndLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(lockedBuffer)
		b := newBench(backends.Options{Log: logTo(log), RetryFor: 2 * time.Minute})
		b.mem.Generate("k", 1)
		b.mem.Generate("other", 1)
		b.faults.Always(conformance.Delete, conformance.Fail(backends.Unavailable))
		began := time.Now()
		done := make(chan error)
		go func() { done <- b.Delete(t.Context(), "k") }()
		time.Sleep(2 * time.Second)
		if _, err := b.Stat(t.Context(), "other"); err != nil { // everything else gets a response
			t.Error(err)
		}
		lines := func() int { return strings.Count(log.String(), "level=WARN msg=\"store request failed, retrying\"") }
		if lines() == 0 {
			t.Errorf("after 2 s the log has no word of it:\n%s", log)
		}
		err := <-done
		if took := time.Since(began); took > 2*time.Minute || took < time.Minute {
			t.Errorf("it ended after %v, want up to 2 minutes", took)
		}
		if got := lines(); got < 3 || got > 5 {
			t.Errorf("the log has it %d times, want 3 to 5 in 2 minutes:\n%s", got, log)
		}
		for _, want := range []string{"delete", "k: ", "gave up after"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q in it", err, want)
			}
		}
		if !strings.Contains(log.String(), "giving_up_after=2m0s") {
			t.Errorf("the log has no limit:\n%s", log)
		}
	})
}
