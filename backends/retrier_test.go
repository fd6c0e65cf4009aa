package backends

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// attempts returns how often a request is tried that always fails with err, and the final error.
func attempts(err error, moved func(i int) bool) (tried int, took time.Duration, final error) {
	start, r := time.Now(), newRetrier(time.Minute)
	for final == nil && tried < 1000 {
		var pause time.Duration
		pause, final = r.next(err, moved(tried))
		tried++
		time.Sleep(pause) // in virtual time
	}
	return tried, time.Since(start), final
}

func TestRetrierStopsByKind(t *testing.T) {
	never := func(int) bool { return false }
	for _, tt := range []struct {
		name        string
		err         error
		moved       func(int) bool
		least, most int           // attempts
		within      time.Duration // all of them
		words       string
	}{
		{"a missing object", &Error{Kind: NotExist, Err: errors.New("gone")}, never, 1, 1, 0, "gone"},
		{"an error that asks for another attempt", &Error{Kind: Permission, Again: true, Err: errors.New("expired")}, never, 8, 20, time.Minute, "without progress"},
		{"no connection", &Error{Kind: Unavailable, Err: errors.New("refused")}, never, 8, 20, time.Minute, "gave up after"},
		{"an unknown error", &Error{Kind: Unknown, Err: errors.New("odd")}, never, unknownTries, unknownTries, time.Minute, "gave up after 5 tries"},
		{"a pause longer than the patience", &Error{Kind: Throttled, RetryAfter: time.Hour, Err: errors.New("slow down")}, never, 1, 1, 0, "gave up after 1 try "},
		{"progress at first", &Error{Kind: Unavailable, Err: errors.New("reset")}, func(i int) bool { return i < 100 }, 108, 120, 2 * time.Minute, "without progress"},
	} {
		synctest.Test(t, func(t *testing.T) {
			tried, took, err := attempts(tt.err, tt.moved)
			if tried < tt.least || tried > tt.most || took > tt.within {
				t.Errorf("%s: %d attempts in %v, want %d to %d within %v", tt.name, tried, took, tt.least, tt.most, tt.within)
			}
			if err == nil || !strings.Contains(err.Error(), tt.words) {
				t.Errorf("%s: got %v, want %q", tt.name, err, tt.words)
			}
		})
	}
}
