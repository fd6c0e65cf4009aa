package admission

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stager-dev/stager/stager/admission/kube"
	"github.com/stager-dev/stager/stager/jobspec"
)

// levels returns Levels with an API server that has the namespace team, and a counter of requests.
func levels(t *testing.T, level string, code int) (l *Levels, asked *atomic.Int64) {
	t.Helper()
	asked = new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Path != "/api/v1/namespaces/team" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"metadata":{"name":"team","labels":{"pod-security.kubernetes.io/enforce":%q}}}`, level)
	}))
	t.Cleanup(server.Close)
	return &Levels{API: &kube.Client{URL: server.URL, HTTP: server.Client(), Token: func() (string, error) { return "x", nil }}}, asked
}

// Privileges are refused if the namespace enforces the restricted level. The namespace is read only
// for pods that request privileges, and once for many pods.
func TestReviewOfPrivileges(t *testing.T) {
	privileged := strings.Replace(podWith(asking), `"annotations":{`, `"annotations":{"stager.dev/privileges":"files",`, 1)
	for _, tt := range []struct {
		name, pod, level string
		code             int
		usual            string // default level of the webhook
		asked            int64
		what             Outcome
		want             string // in the patch or the refusal
	}{
		{"no level", privileged, "", 200, "", 1, Injected, `"DAC_READ_SEARCH"`},
		{"privileged", privileged, "privileged", 200, "", 1, Injected, `"DAC_READ_SEARCH"`},
		{"baseline", privileged, "baseline", 200, "", 1, Injected, `"DAC_OVERRIDE"`},
		{"restricted", privileged, "restricted", 200, "", 1, Refused, "the namespace enforces the Pod Security level restricted, which forbids it"},
		{"the webhook's own level where the namespace has none", privileged, "", 200, "restricted", 1, Refused, "enforces the Pod Security level restricted"},
		{"the namespace's level above the webhook's own", privileged, "privileged", 200, "restricted", 1, Injected, `"DAC_READ_SEARCH"`},
		{"without the right", privileged, "restricted", 403, "baseline", 2, Injected, `"DAC_OVERRIDE"`},
		{"no privileges", podWith(asking), "restricted", 200, "", 0, Injected, `"runAsUser":65532`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, asked := levels(t, tt.level, tt.code)
			m := &Mutator{Options: jobspec.Options{PodSecurity: tt.usual}, Level: l.Find}
			for range 2 {
				r, what := answered(t, m, reviewOf(t, tt.pod, nil))
				got := string(r.Patch)
				if r.Result != nil {
					got = r.Result.Message
				}
				if what != tt.what || !strings.Contains(got, tt.want) {
					t.Errorf("got %s, %s, want %s, %s", what, got, tt.what, tt.want)
				}
			}
			if n := asked.Load(); n != tt.asked {
				t.Errorf("the API server was asked %d times, want %d", n, tt.asked)
			}
		})
	}
}
