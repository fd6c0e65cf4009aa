package checkpoint

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/mem"
)

// A checkpoint is due when the next one is expected, and within the grace period, with a quarter
// of the time in reserve.
func TestCheckpointIsDueBeforeTheNext(t *testing.T) {
	for _, tt := range []struct{ grace, apart, want time.Duration }{
		{time.Hour, 10 * time.Minute, 10 * time.Minute},
		{time.Minute, 10 * time.Minute, time.Minute},
		{0, 10 * time.Minute, 10 * time.Minute},
		{time.Hour, 0, time.Hour},
		{0, 0, 0},
	} {
		inBubble(t, func(t *testing.T) {
			dir := t.TempDir()
			u := newUploader(t, dir, mem.New(), func(c *Config) { c.Grace = tt.grace })
			save := func(name string, files map[string]string) {
				write(t, filepath.Join(dir, name), files)
				if _, err := u.Commit(t.Context(), CommitRequest{Path: name, Step: -1}); err != nil {
					t.Fatal(err)
				}
			}
			if left, by := u.Due(); left != 0 || !by.IsZero() {
				t.Errorf("with nothing to send got %d bytes by %v", left, by)
			}
			if tt.apart > 0 {
				save("step-1", map[string]string{"a": "1234"})
				pass(t, u)
				time.Sleep(tt.apart)
			}
			save("step-2", map[string]string{"a": "12345", "b": "12345"})
			wantLeft, wantBy := int64(10), time.Now().Add(tt.want/4*3)
			if tt.want == 0 {
				wantLeft, wantBy = 0, time.Time{}
			}
			if left, by := u.Due(); left != wantLeft || !by.Equal(wantBy) {
				t.Errorf("%+v: got %d bytes by %v, want %d by %v", tt, left, by, wantLeft, wantBy)
			}
			pass(t, u)
			if left, _ := u.Due(); left != 0 {
				t.Errorf("%+v: %d bytes are left when it is saved, want none", tt, left)
			}
		})
	}
}
