package check

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
)

func TestCheckOfSeveralNodesNeedsOneWinner(t *testing.T) {
	for _, tt := range []struct {
		what           string
		backend        backends.Backend
		create, weaker string
		broken         string
	}{
		{"a store that decides", mem.New(), "yes, decided by the store", "", ""},
		{"a store that looks first", promising{mem.New(), false, backends.GuardNone}, "no, looked for just before", "both may succeed", ""},
		{"claims", promising{mem.New(), true, backends.GuardClaim}, "yes, decided by the store", "holds up the others for 1m0s", ""},
		{"a kernel's lock", promising{mem.New(), true, backends.GuardLock}, "yes, decided by the store", "locks across machines", ""},
		{"a store that ignores conditions", deaf{mem.New()}, "yes, decided by the store", "", "a second create of one key succeeds; a replacement of an older version succeeds"},
	} {
		m, err := Several(t.Context(), backends.NewStore(tt.backend, "mem://x", backends.Options{RetryFor: time.Second}))
		if err != nil {
			t.Fatalf("%s: %v", tt.what, err)
		}
		if got := m.CreateWords(); !strings.HasPrefix(got, tt.create) {
			t.Errorf("%s: creates: got %q, want %q", tt.what, got, tt.create)
		}
		if got := strings.Join(m.Weaker, "; "); !strings.Contains(got, tt.weaker) || (got == "") != (tt.weaker == "") {
			t.Errorf("%s: weaker: got %q, want %q", tt.what, got, tt.weaker)
		}
		if got := strings.Join(m.Broken, "; "); got != tt.broken {
			t.Errorf("%s: broken: got %q, want %q", tt.what, got, tt.broken)
		}
		if (m.Err() != nil) != (tt.broken != "") {
			t.Errorf("%s: error: got %v, want one: %v", tt.what, m.Err(), tt.broken != "")
		}
		for obj, err := range tt.backend.List(t.Context(), "") {
			t.Errorf("%s: left %v, %v, want nothing", tt.what, obj.Key, err)
		}
	}
}

// promising is a store with other capabilities.
type promising struct {
	*mem.Backend
	create bool
	guard  backends.Guard
}

func (p promising) Capabilities() backends.Capabilities {
	f := p.Backend.Capabilities()
	f.ConditionalCreate, f.Guard = p.create, p.guard
	return f
}

// deaf ignores conditions, as gateways do that do not know their headers.
type deaf struct{ *mem.Backend }

func (d deaf) Create(ctx context.Context, key string, _ backends.CreateOptions) (backends.Writer, error) {
	return d.Backend.Create(ctx, key, backends.CreateOptions{Size: -1})
}

func (d deaf) CreateParts(ctx context.Context, key string, opts backends.CreateOptions) (backends.PartWriter, error) {
	return d.Backend.CreateParts(ctx, key, backends.CreateOptions{Size: opts.Size})
}
