package trial

import (
	"fmt"
	"testing"
	"time"
)

// The same over small files that nobody packed, sixteen to a bundle: readers and stager
// are killed, also while a bundle is shown or removed, which takes a step for each file.
// STAGER_TRIAL=full has 200 bundles of 64 files, five epochs, and stager killed 20 times.
func TestBundleLosesNothing(t *testing.T) {
	bundles, files, epochs := 48, 16, 2
	stagerKills := []float64{0.1, 0.3, 0.5, 0.7, 0.9}
	if full {
		bundles, files, epochs, stagerKills = 200, 64, 5, evenly(20)
	}
	binary := build(t)
	s3 := anS3(t)
	loose := t.TempDir()
	digests, err := PackLoose(loose, bundles, files, 1024)
	if err != nil {
		t.Fatal(err)
	}
	s3.push(t, binary, loose, "loose")
	room := files * 4096 // each file takes a block
	every := 200 * time.Millisecond
	next := time.Now().Add(every)
	report, _ := s3.window(t, binary, "loose", shards{bundles, room, digests}, Config{
		Readers: 4, Pace: 30 * time.Millisecond, Epochs: epochs, Items: bundlesOf(room),
		KillReaders: func(int, int) bool {
			if time.Now().Before(next) {
				return false
			}
			next = time.Now().Add(every)
			return true
		},
		KillStager: stagerKills,
	})
	if report.KilledStager < len(stagerKills) || report.KilledReaders == 0 {
		t.Errorf("stager was killed %d times of %d, readers %d times", report.KilledStager, len(stagerKills), report.KilledReaders)
	}
}

func bundlesOf(room int) string { return fmt.Sprintf("items: bundles, bundle: %d", room) }
