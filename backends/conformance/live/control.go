package live

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/stager-dev/stager/backends/conformance"
)

// Control is the URL of the control API of a fake of an object store; package fake in e2e/servers has
// its requests.
type Control string

// Send sends a request and parses the response into out, if not nil.
func (c Control) Send(t testing.TB, method, path string, out any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, string(c)+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s", method, path, res.Status)
	}
	if out != nil {
		if err := json.NewDecoder(res.Body).Decode(out); err != nil {
			t.Fatal(err)
		}
	}
}

// Inject injects a fault.
func (c Control) Inject(t *testing.T, f conformance.Injected) {
	t.Helper()
	c.Send(t, http.MethodPost, "/faults?"+url.Values{
		"kind": {f.Kind}, "method": {f.Method}, "key": {f.Key}, "param": {f.Param}, "action": {f.Action},
		"bytes": {fmt.Sprint(f.Bytes)}, "times": {fmt.Sprint(f.Times)},
	}.Encode(), nil)
}

// Restart takes the server away for a second.
func (c Control) Restart(t *testing.T) {
	t.Helper()
	c.Send(t, http.MethodPost, "/down?for=1s", nil)
}
