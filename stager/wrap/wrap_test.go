package wrap

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stager-dev/stager/stager/api"
)

// hold waits while the sidecar does not respond, and accepts its response. A refusal is final: the
// sidecar has tried for as long as the plan allows.
func TestHoldWaitsForTheSidecar(t *testing.T) {
	away := &api.UnreachableError{Err: errors.New("connection refused")}
	opening := &api.RefusedError{Status: 503, Words: "it is still being opened"}
	refused := &api.RefusedError{Status: 500, Words: "output ckpt: step 3 is not safe"}
	const limit = 10*time.Minute + pause/2 // between two requests
	for _, tt := range []struct {
		name    string
		answers []error // of Save; the last one is repeated
		code    int
		success bool
		want    string // of the error; "": none
		took    time.Duration
		asked   int
	}{
		{"it answers", []error{nil}, 0, false, "", 0, 1},
		{"it answers, and the command failed", []error{nil}, 7, false, "", 0, 1},
		{"it is started again", []error{away, away, opening, nil}, 0, false, "", 3 * pause, 4},
		{"it cannot save", []error{away, refused}, 0, false, "step 3 is not safe", pause, 2},
		{"it stays away", []error{away}, 0, false, "did not save them within 10m0.5s; --save-wait", limit, 601},
		{"the command failed and is run again", []error{away}, 7, true, "", 0, 0},
		{"the command succeeded at last", []error{away, nil}, 0, true, "", pause, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				cfg := Config{Wait: limit, SuccessOnly: tt.success, Away: api.Unready, Log: silent}
				cfg.Save = func(_ context.Context, code int) error {
					if code != tt.code {
						t.Errorf("got the code %d, want %d", code, tt.code)
					}
					asked++
					return tt.answers[min(asked, len(tt.answers))-1]
				}
				began := time.Now()
				err := cfg.hold(t.Context(), tt.code)
				if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
					t.Errorf("got the error %v, want %q", err, tt.want)
				}
				if took := time.Since(began); took != tt.took {
					t.Errorf("got %s, want %s", took, tt.took)
				}
				if asked != tt.asked {
					t.Errorf("got %d calls, want %d", asked, tt.asked)
				}
			})
		})
	}
}

// A sidecar that accepts the request and never responds does not block a container for ever.
func TestHoldEndsACallThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Wait: time.Minute, Away: api.Unready, Log: silent}
		cfg.Save = func(ctx context.Context, _ int) error {
			<-ctx.Done()
			return ctx.Err()
		}
		if err := cfg.hold(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "within 1m0s") {
			t.Errorf("got the error %v, want one that names the limit of 1m0s", err)
		}
	})
}
