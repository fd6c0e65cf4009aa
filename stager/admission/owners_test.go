package admission

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stager-dev/stager/stager/admission/kube"
	"github.com/stager-dev/stager/stager/jobspec"
)

const trainJob = `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"train","uid":"1","labels":{"a":"b"}},
"spec":{"completions":4,"completionMode":"Indexed","template":{"spec":{"containers":[{"name":"main","image":"x"}]}}},"status":{"active":4}}`

// owners returns Owners with an API server that has one Job, and a counter of requests.
func owners(t *testing.T, mayRead bool) (o *Owners, asked *atomic.Int64) {
	t.Helper()
	asked = new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		switch {
		case !mayRead:
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"message":"jobs.batch \"train\" is forbidden"}`)
		case r.Method == http.MethodGet && r.URL.Path == "/apis/batch/v1/namespaces/team/jobs/train":
			fmt.Fprint(w, trainJob)
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprintf(w, `{"message":"%s is not there"}`, r.URL.Path)
		}
	}))
	t.Cleanup(server.Close)
	return &Owners{API: &kube.Client{URL: server.URL, HTTP: server.Client(), Token: func() (string, error) { return "x", nil }}}, asked
}

func TestOwners(t *testing.T) {
	job := Owner{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "1", Controller: true}
	other, gone, set := job, job, job
	other.UID, gone.Name, set.Kind = "2", "gone", "ReplicaSet"
	for _, tt := range []struct {
		name    string
		owner   Owner
		mayRead bool
		want    string // a part of the object; "": none
		why     string
	}{
		{"found", job, true, `"completions":4`, ""},
		{"another of the same name", other, true, "", `its UID is "1", not "2"`},
		{"gone", gone, true, "", "Job gone cannot be read: the API server returned 404"},
		{"of a kind that does not count", set, true, "", ""},
		{"without the right", job, false, "", `the webhook may not get Job train (jobs.batch "train" is forbidden)`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o, _ := owners(t, tt.mayRead)
			object, err := o.Find("team", tt.owner)
			if !strings.Contains(string(object), tt.want) || tt.want == "" && object != nil {
				t.Errorf("got %s, want %q", object, tt.want)
			}
			if tt.why == "" && err != nil || tt.why != "" && (err == nil || !strings.Contains(err.Error(), tt.why)) {
				t.Errorf("got the error %v, want %q", err, tt.why)
			}
			if strings.Contains(string(object), "status") {
				t.Errorf("got %s, want nothing but what was asked for", object)
			}
		})
	}
}

// All pods of a Job arrive at about the same time and cause one request to the API server.
func TestOwnersAskOnce(t *testing.T) {
	o, asked := owners(t, true)
	var group sync.WaitGroup
	for range 200 {
		group.Go(func() {
			if _, err := o.Find("team", Owner{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "1"}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if n := asked.Load(); n != 1 {
		t.Errorf("the API server was asked %d times, want 1", n)
	}
}

// A pod with an index gets the number of pods from its Job, or is refused: it would certainly exit
// with code 78.
func TestReviewCountsPods(t *testing.T) {
	pod := strings.Replace(podWith(asking), `"labels":{`, `"ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":"train","uid":"1","controller":true}],
		"labels":{"batch.kubernetes.io/job-completion-index":"0",`, 1)
	for _, tt := range []struct {
		name, pod string
		reads     bool // the webhook reads owners
		mayRead   bool
		what      Outcome
		want      string // in the patch or the refusal
	}{
		{"the Job counts", pod, true, true, Injected, `{"name":"STAGER_COUNT","value":"4"}`},
		{"the annotation counts", strings.Replace(pod, `"annotations":{`, `"annotations":{"stager.dev/count":"3",`, 1), false, false, Injected, `{"name":"STAGER_COUNT","value":"3"}`},
		{"without the right", pod, true, false, Refused, "their number is unknown: the webhook may not get Job train"},
		{"no owners are read", pod, false, false, Refused, "Job train created it, and this webhook reads no owners (--no-owners)"},
		{"no owner", strings.Replace(pod, `"controller":true`, `"controller":false`, 1), true, true, Refused, "it has no owner reference"},
		{"an owner of another kind", strings.Replace(pod, `"kind":"Job"`, `"kind":"Surprise"`, 1), true, true, Refused, "Surprise train created it, which is of a kind that the webhook does not read"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := &Mutator{Options: jobspec.Options{}}
			if tt.reads {
				o, _ := owners(t, tt.mayRead)
				m.Owner = o.Find
			}
			r, what := answered(t, m, reviewOf(t, tt.pod, nil))
			got := string(r.Patch)
			if r.Result != nil {
				got = r.Result.Message
			}
			if what != tt.what || !strings.Contains(got, tt.want) {
				t.Errorf("got %s, %s, want %s, %s", what, got, tt.what, tt.want)
			}
		})
	}
}
