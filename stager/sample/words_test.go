package sample

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stager-dev/stager/window"
)

// words collects a log.
type words struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

// want checks that messages were logged at warn.
func (w *words) want(t *testing.T, messages ...string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range messages {
		if !strings.Contains(w.text.String(), `level=WARN msg="`+m+`"`) {
			t.Errorf("the log has no warning %q:\n%s", m, w.text.String())
		}
	}
}

// broken is a source whose leases cannot be renewed.
type broken struct{ Source }

func (broken) Renew(string) error { return errors.New("broken") }

func TestSamplerReportsALeaseThatIsNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said words
		ctx, cancel := context.WithCancel(t.Context())
		s := &Sampler{cfg: Config{Source: broken{}}, log: slog.New(slog.NewTextHandler(&said, nil)), held: []*shard{{Lease: "l"}}}
		go s.renew(ctx)
		<-time.After(2 * renewEvery)
		cancel()
		said.want(t, "cannot renew a lease")
	})
}

// forgetful is a source that fails each acknowledgement after it took it.
type forgetful struct{ Source }

func (f forgetful) Ack(id string) error {
	return errors.Join(f.Source.Ack(id), errors.New("broken"))
}

func TestSamplerReportsAShardThatIsNotAcknowledged(t *testing.T) {
	var said words
	d := records(3, 5)
	h := newHouse(t, d, 0, func(c *Config) {
		c.Source, c.Log = forgetful{c.Source}, slog.New(slog.NewTextHandler(&said, nil))
	})
	d.once(t, names(t, h.epoch()))
	said.want(t, "cannot acknowledge a shard, it will be redelivered")
}

// A directory in the place of the state is another program's and stays, so the state is not kept.
func TestSamplerReportsAStateThatIsNotKept(t *testing.T) {
	var said words
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, stateName, "mine"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := &Sampler{cfg: Config{Dir: dir}, log: slog.New(slog.NewTextHandler(&said, nil))}
	s.hold(window.Lease{ID: "l"})
	said.want(t, "cannot write the state")
}
