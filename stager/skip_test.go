package stager

import (
	"errors"
	"strings"
	"testing"

	"github.com/stager-dev/stager/window"
)

// A plan could not let a window continue without a bad shard, although the window could. Each
// policy of onBad names the shard; fail ends the epoch, skip fails only at the end. If SIGTERM
// arrived just after readers had seen a failure, the failure was lost and the exit code was 0.
func TestWindowOnBad(t *testing.T) {
	for _, tt := range []struct {
		onBad               string
		goesOn, fails, lost bool
	}{
		{"", false, true, false}, {"fail", false, true, false}, {"skip", true, true, true}, {"allow", true, false, true},
	} {
		t.Run("onBad "+tt.onBad, func(t *testing.T) {
			in := windowInput
			if tt.onBad != "" {
				in = strings.ReplaceAll(in, "1Mi", "1Mi, onBad: "+tt.onBad)
			}
			j := newJob(t, " inputs:\n"+in)
			j.start()
			j.ready()
			refused := ""
			for range 3 {
				refused = j.lease().Lease
				if code, body := j.call("POST", "/v1/leases/"+refused+"/nack?reason=torn", ""); code != 204 {
					t.Fatalf("nack: got %d %s, want 204", code, body)
				}
			}
			code, body := j.call("POST", "/v1/inputs/train/lease?wait=1m", "") // the result of the third refusal
			if goesOn := code == 200 && !strings.Contains(body, "torn"); goesOn != tt.goesOn {
				t.Errorf("after a bad shard a lease is answered with %d %s, want that it goes on: %v", code, body, tt.goesOn)
			}
			if lost := j.Snapshot().Inputs[0].Window != nil && len(j.Snapshot().Inputs[0].Window.Skipped) == 1; lost != tt.lost {
				t.Errorf("got %v for whether the status lists the shard as skipped, want %v", lost, tt.lost)
			}
			err := j.finish()
			var skipped *window.SkippedError
			if (err != nil) != tt.fails || errors.As(err, &skipped) != (tt.fails && tt.goesOn) {
				t.Errorf("got %v, want an error: %v", err, tt.fails)
			}
			if skipped != nil && (len(skipped.Items) != 1 || !strings.Contains(err.Error(), "torn")) {
				t.Errorf("got %v, want one shard with its reason", err)
			}
		})
	}
}
