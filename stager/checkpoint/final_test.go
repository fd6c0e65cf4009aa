package checkpoint

import (
	"bytes"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/mem"
)

// saveQuietly writes a checkpoint that only a quiet period completes.
func saveQuietly(t *testing.T, u *Uploader, step string, names ...string) {
	t.Helper()
	files := make(map[string]string)
	for _, name := range names {
		files[name] = zipped(t, name+" of "+step)
	}
	write(t, filepath.Join(u.cfg.Dir, step), files)
	settled(t, u)
	time.Sleep(time.Minute) // trainers do not save within the clock's resolution
}

func provisionals(t *testing.T, b *mem.Backend) string {
	t.Helper()
	var dirs []string
	for _, dir := range commits(b) {
		c, err := readCommit(t.Context(), newStore(b), dir)
		if err != nil {
			t.Fatal(err)
		}
		if c.Provisional {
			dirs = append(dirs, strings.TrimLeft(strings.TrimPrefix(dir, "step-"), "0"))
		}
	}
	return strings.Join(dirs, " ")
}

// Provisional steps become final when a later save has ended with the same files. Regression:
// they stayed provisional forever.
func TestProvisionalStepsBecomeFinal(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, nil)
		for _, s := range []struct{ step, want string }{
			{"step-100", "100"},
			{"step-200", "100 200"}, // it may be partial, like the first
			{"step-300", ""},        // 200 has ended
		} {
			saveQuietly(t, u, s.step, "model.pt", "optim.pt")
			if got := provisionals(t, b); got != s.want {
				t.Errorf("after %s: provisional are %q, want %q", s.step, got, s.want)
			}
		}
		if c := commitOf(t, b, 100); c.Evidence != "quiet 10s, as step-00000200" {
			t.Errorf("evidence of step 100: %q, want what confirmed it", c.Evidence)
		}
	})
}

// A killed trainer leaves a partial save. The next save starts with the same files and pauses.
// Neither makes the other final. Regression: the shape of the first partial save permanently
// completed the second.
func TestHalfOfKilledWriterNeverBecomesFinal(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, nil)
		saveQuietly(t, u, "step-100", "model.pt")
		saveQuietly(t, u, "step-200", "model.pt")
		if got := provisionals(t, b); got != "100 200" {
			t.Errorf("with two halves: provisional are %q, want both", got)
		}
		saveQuietly(t, u, "step-200", "optim.pt")
		saveQuietly(t, u, "step-300", "model.pt", "optim.pt")
		saveQuietly(t, u, "step-400", "model.pt", "optim.pt")
		if got := provisionals(t, b); got != "100" {
			t.Errorf("with three whole ones: provisional are %q, want 100", got)
		}
	})
}

// A successful exit of the trainer makes the last steps final.
func TestProvisionalStepsBecomeFinalAtACleanEnd(t *testing.T) {
	for name, c := range map[string]struct {
		exit Exit
		want string
	}{
		"ended well":  {Exit{Success: true, Gone: true}, ""},
		"failed":      {Exit{Gone: true}, "100 200"},
		"not known":   {Exit{Success: true}, "100 200"},
		"interrupted": {Exit{}, "100 200"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b, dir := mem.New(), t.TempDir()
				u := newUploader(t, dir, b, nil)
				saveQuietly(t, u, "step-100", "model.pt", "optim.pt")
				saveQuietly(t, u, "step-200", "model.pt", "optim.pt")
				if err := u.Drain(t.Context(), c.exit); err != nil {
					t.Fatal(err)
				}
				if got := provisionals(t, b); got != c.want {
					t.Errorf("provisional are %q, want %q", got, c.want)
				}
			})
		})
	}
}

// Restore prefers a final step to a newer provisional one with other files, unless provisional
// ones are allowed. Regression: it restored the partial one and reported success.
func TestRestorePrefersFinalSteps(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, nil)
		write(t, filepath.Join(dir, "step-100"), map[string]string{"model.pt": zipped(t, "m"), "optim.pt": zipped(t, "o")})
		write(t, filepath.Join(dir, "step-100"), map[string]string{markerName: ""})
		settled(t, u)
		u = newUploader(t, t.TempDir(), b, nil) // it knows no shapes
		saveQuietly(t, u, "step-200", "model.pt", "optim.pt")
		for _, c := range []struct {
			half  string
			allow bool
			step  int64
			want  int64
		}{
			{"", false, Newest, 200}, // confirmed by the final one before it
			{"step-300", false, Newest, 200},
			{"", true, Newest, 300}, // allowed
			{"", false, 300, 300},   // requested by its number
		} {
			if c.half != "" {
				saveQuietly(t, newUploader(t, t.TempDir(), b, nil), c.half, "model.pt")
			}
			r, err := Restore(t.Context(), RestoreConfig{
				Store: newStore(b), Dir: filepath.Join(t.TempDir(), "r"), Step: c.step, AllowProvisional: c.allow,
			})
			if err != nil || r.Step != c.want {
				t.Errorf("%+v: got step %d, %v, want %d", c, r.Step, err, c.want)
			}
			if passed := len(r.FellBackFrom) == 1; passed != (c.half != "") || passed && !strings.Contains(r.FellBackFrom[0].Reason, "--allow-provisional") {
				t.Errorf("%+v: passed over %v, want the half and what allows it", c, r.FellBackFrom)
			}
			if r.Provisional != (r.Step == 300) {
				t.Errorf("%+v: provisional %v of step %d", c, r.Provisional, r.Step)
			}
		}
	})
}

// If no step is final, restore uses the newest provisional one.
func TestRestoreTakesProvisionalStepsWhereNoneIsFinal(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		u := newUploader(t, t.TempDir(), b, nil)
		saveQuietly(t, u, "step-100", "model.pt")
		saveQuietly(t, u, "step-200", "model.pt")
		if r, _ := restoreNewest(t, b); r.Step != 200 || !r.Provisional {
			t.Errorf("restored step %d, provisional %v, want 200, provisional", r.Step, r.Provisional)
		}
	})
}

// Retention does not remove the newest final step in favor of provisional ones.
func TestRetentionKeepsTheNewestFinalStep(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, func(c *Config) { c.Keep = Keep{Last: 1} })
		write(t, filepath.Join(dir, "step-100"), map[string]string{"model.pt": zipped(t, "m"), "optim.pt": zipped(t, "o")})
		write(t, filepath.Join(dir, "step-100"), map[string]string{markerName: ""})
		settled(t, u)
		// Another run, which saves different files.
		u = newUploader(t, t.TempDir(), b, func(c *Config) { c.Keep = Keep{Last: 1} })
		saveQuietly(t, u, "step-200", "model.pt")
		if got := strings.Join(commits(b), " "); got != "step-00000100 step-00000200" {
			t.Errorf("committed are %q, want both", got)
		}
		r, files := restoreNewest(t, b)
		if want := map[string]string{"model.pt": zipped(t, "m"), "optim.pt": zipped(t, "o")}; r.Step != 100 || !maps.Equal(files, want) {
			t.Errorf("restored step %d, want 100", r.Step)
		}
	})
}

// A step that was saved again over an old one may hold files of both saves.
func TestFilesOfTwoSavesDoNotBecomeFinal(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		for _, step := range []string{"step-100", "step-200", "step-300"} {
			saveQuietly(t, newUploader(t, t.TempDir(), b, nil), step, "model.pt", "optim.pt")
		}
		write(t, filepath.Join(dir, "step-400"), map[string]string{"model.pt": zipped(t, "m"), "optim.pt": zipped(t, "o")})
		old := time.Unix(1e9, 0)
		if err := os.Chtimes(filepath.Join(dir, "step-400/optim.pt"), old, old); err != nil {
			t.Fatal(err)
		}
		settled(t, newUploader(t, dir, b, nil))
		if got := provisionals(t, b); got != "400" {
			t.Errorf("provisional are %q, want 400", got)
		}
	})
}

// Several nodes order the steps by the first COMMIT of each, even if a COMMIT was replaced since
// to make it final.
func TestNewestStepIsNotOneThatBecameFinal(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, nil)
		for _, step := range []string{"step-100", "step-200", "step-300"} {
			saveQuietly(t, u, step, "model.pt", "optim.pt")
		}
		if got := provisionals(t, b); got != "" {
			t.Fatalf("provisional are %q, want none", got)
		}
		found, err := newestStep(t.Context(), newStore(b), u.log)
		if err != nil || found.Step != 300 {
			t.Errorf("newest is %+v, %v, want step 300", found, err)
		}
	})
}

// The next process knows the shapes of checkpoints that one process learned: a partial checkpoint
// waits for the rest. Regression: it was committed after the quiet period.
func TestShapesAreRememberedOverARestart(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, nil)
		for _, step := range []string{"step-100", "step-200", "step-300"} {
			saveQuietly(t, u, step, "model.pt", "optim.pt")
		}
		if err := u.Close(); err != nil {
			t.Fatal(err)
		}
		u = newUploader(t, dir, b, nil)
		saveQuietly(t, u, "step-400", "model.pt")
		if got := len(commits(b)); got != 3 {
			t.Errorf("with the half of a fourth: committed %v, want three; waiting %v", commits(b), u.Status().Waiting)
		}
		saveQuietly(t, u, "step-400", "optim.pt")
		if c := commitOf(t, b, 400); c.Evidence != "shape" || c.Provisional {
			t.Errorf("step 400: evidence %q, provisional %v, want its shape", c.Evidence, c.Provisional)
		}
		if s := u.Status(); s.Committed.Evidence != "shape" || s.Complete.Evidence != "shape" {
			t.Errorf("the status has committed %+v, complete %+v, want the evidence", s.Committed, s.Complete)
		}
	})
}

// A checkpoint that lacks files of earlier ones causes a warning when it takes twice the interval
// between the last two.
func TestOverdueCheckpointIsReportedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var said bytes.Buffer
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&said, nil)) })
		saveQuietly(t, u, "step-100", "model.pt", "optim.pt")
		saveQuietly(t, u, "step-200", "model.pt", "optim.pt")
		saveQuietly(t, u, "step-300", "model.pt")
		const warning = "is still not complete"
		if got := strings.Count(said.String(), warning); got != 0 {
			t.Errorf("after one interval: %d warnings, want none", got)
		}
		for range 3 {
			time.Sleep(2 * time.Minute)
			pass(t, u)
		}
		if got := strings.Count(said.String(), warning); got != 1 || !strings.Contains(said.String(), "optim.pt, which is not there") {
			t.Errorf("after more than two: %d warnings, want one that names optim.pt", got)
		}
	})
}
