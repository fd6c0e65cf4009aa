package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
)

// failures are how a server may fail requests.
var failures = []struct {
	name string
	does func(op conformance.Op) conformance.Fault
	says string
	// The kind of the result where the store answers no request of a kind from the beginning, and
	// where it answered the first ones, so that there is a report.
	first, later backends.Kind
}{
	{"answers 500", failing(backends.Unavailable, "the server returned HTTP 500"), "HTTP 500", backends.Unavailable, backends.Invalid},
	{"answers 503", failing(backends.Throttled, "SlowDown (HTTP 503)"), "HTTP 503", backends.Throttled, backends.Throttled},
	{"answers 403", failing(backends.Permission, "access denied (HTTP 403)"), "HTTP 403", backends.Permission, backends.Permission},
	{"answers 501", failing(backends.Unsupported, "NotImplemented (HTTP 501)"), "HTTP 501", backends.Unsupported, backends.Invalid},
	{"hangs", func(conformance.Op) conformance.Fault { return conformance.Hang() }, "", backends.Unavailable, backends.Invalid},
	{"cuts the connection", failing(backends.Unavailable, "connection reset by peer"), "connection reset", backends.Unavailable, backends.Invalid},
}

func failing(kind backends.Kind, words string) func(conformance.Op) conformance.Fault {
	return func(op conformance.Op) conformance.Fault {
		return conformance.FailWith(backends.Errorf(kind, string(op), "", "%s", words))
	}
}

// A server may fail each kind of request in each way, from the first request or from a later one on,
// and answer all others. A check hung for ever with a server that did not answer requests to read,
// and ended with 69, "store unreachable", with one that answered 500 to one kind of request.
func TestCheckOfAStoreThatFailsOneKindOfRequest(t *testing.T) {
	writes := []conformance.Op{conformance.Create, conformance.Write, conformance.Commit, conformance.Delete}
	for _, op := range append([]conformance.Op{conformance.List, conformance.Stat, conformance.Read}, writes...) {
		for _, fails := range failures {
			for _, from := range []string{"listing existing objects", "the capabilities of the store are consistent"} {
				for _, readOnly := range []bool{false, true} {
					if readOnly && slices.Contains(writes, op) {
						continue
					}
					t.Run(fmt.Sprintf("%s/%s/from %s/read-only=%v", op, fails.name, from, readOnly), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							f := slow()
							began := time.Now()
							r, left, err := try(t.Context(), t, Config{ReadOnly: readOnly, Progress: func(now string) {
								if now == from {
									f.Always(op, fails.does(op))
								}
							}}, f.Wrap)
							if got := time.Since(began); got > 25*time.Minute {
								t.Errorf("the check took %v", got)
							}
							want := fails.later
							if r == nil {
								want = fails.first
							} else if err == nil {
								err = r.Err()
							}
							if got := backends.KindOf(err); err == nil || got != want {
								t.Errorf("got kind %s (%v), want %s", got, err, want)
							}
							wantSentence(t, r, err, fails.says)
							if len(left) > 0 && op != conformance.Delete && op != conformance.List || r != nil && len(left) > 0 != (r.Left != "") {
								t.Errorf("%q is left, and the report says %q", left, r.Left)
							}
						})
					})
				}
			}
		}
	}
}

// wantSentence checks that an error, and each promise found broken, says in a line what failed and
// what to do.
func wantSentence(t *testing.T, r *Report, err error, says string) {
	t.Helper()
	if err == nil {
		return
	}
	sentence, _, _ := strings.Cut(err.Error(), "\n")
	if r == nil || r.Count(Fails) != 1 {
		if !strings.Contains(sentence, says) {
			t.Errorf("the first line of the error is %q, want it to name %q", sentence, says)
		}
	}
	if r == nil {
		return
	}
	for _, p := range r.Promises {
		if p.State != Fails {
			continue
		}
		if len(p.Found) == 0 || p.Means == "" || p.Do == "" {
			t.Errorf("%+v does not say what was found, what it means and what to do", p)
		}
		if !strings.Contains(strings.Join(p.Found, "\n"), says) {
			t.Errorf("%q: found %q, want it to name %q", p.Sentence, p.Found, says)
		}
	}
}
