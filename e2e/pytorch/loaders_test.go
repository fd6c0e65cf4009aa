package pytorch

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"
)

// tally counts the samples that were used in all epochs, and those that are missing in one, or
// there more than once.
func tally(used [][]int, epochs int) (all, lost, twice int) {
	for epoch := range epochs {
		times := make(map[int]int)
		if epoch < len(used) {
			for _, sample := range used[epoch] {
				times[sample]++
			}
			all += len(used[epoch])
		}
		lost += samples
		for _, n := range times {
			lost--
			twice += n - 1
		}
	}
	return all, lost, twice
}

// Every loader of the manual is killed in mid-epoch again and again: the trainer, a worker of it, or
// stager and then the trainer, at moments drawn at random. Each time the next trainer continues at
// the state that the last one kept. STAGER_TRIAL=full kills 20 times, and 100 times with torchdata's
// loader, and prints a table.
func TestLoadersUseSamplesOnceAfterManyKills(t *testing.T) {
	l := newLab(t)
	full := os.Getenv("STAGER_TRIAL") == "full"
	var table strings.Builder
	fmt.Fprintln(&table, "| loader | workers | epochs | killed: trainers, workers, stager | samples used | lost | twice |\n|---|---|---|---|---|---|---|")
	for i, row := range []struct {
		name, kind, module string
		workers, shuffle   int
		kills              int // in full form
	}{
		{"`stager.batches`", "batches", "", 0, 64, 20},
		{"`SampleDataset`, DataLoader", "samples", "", 0, 0, 20},
		{"the same", "samples", "", 2, 0, 20},
		{"the same, shuffled", "samples", "", 3, 64, 20},
		{"the same, StatefulDataLoader", "stateful", "torchdata", 0, 0, 20},
		{"the same, StatefulDataLoader", "stateful", "torchdata", 1, 0, 20},
		{"the same, StatefulDataLoader", "stateful", "torchdata", 2, 0, 100},
		{"`ShardDataset`, WebDataset", "shards", "", 2, 0, 20},
		{"`stager.webdataset`", "webdataset", "", 2, 64, 20},
		{"`stager.hf.dataset`", "hf", "datasets", 2, 0, 20},
		{"`stager.ray.dataset`", "ray", "ray.train", 0, 0, 20},
		{"`stager.tf.dataset`", "tf", "tensorflow", 0, 0, 20},
		{"`stager.grain.loader`", "grain", "grain", 0, 0, 20},
	} {
		t.Run(fmt.Sprintf("%s/%d workers", row.kind, row.workers), func(t *testing.T) {
			own := *l
			own.t, own.epochs = t, 2
			python, kills := own.trainer.Python, 5
			if row.module != "" {
				python = importing(t, row.module)
			}
			if full {
				kills = row.kills
				own.epochs = 1 + kills/2 // as many as the fastest loader needs
			}
			n := own.nodeOf("s3://digits/none/", count/3)
			defer n.destroy()
			s := own.trainers(t, python, n.socket, row.workers, row.shuffle, row.kind, time.Duration(2+kills/2)*time.Minute)
			random := rand.New(rand.NewPCG(5, uint64(i)))
			killed := make(map[string]int)
			for k := range kills {
				what := "trainer"
				switch {
				case k%5 == 3:
					what = "stager"
				case k%4 == 1 && row.workers > 0:
					what = "worker"
				}
				killed[what]++
				kill := fmt.Sprintf("%s@%d+%d", what, 32+random.IntN(80), random.IntN(60))
				if code := s.kill(kill, func() { n.strike(t, "stager", 0) }); code == 0 {
					t.Fatalf("after %d kills all epochs are over, want more of them", k)
				}
			}
			all, lost, twice := tally(s.uses(), own.epochs)
			if lost > 0 || twice > 0 || all != own.epochs*samples {
				t.Errorf("got %d samples after %d kills, %d lost and %d twice, want each of %d once in %d epochs", all, kills, lost, twice, samples, own.epochs)
			}
			fmt.Fprintf(&table, "| %s | %d | %d | %d, %d, %d | %d | %d | %d |\n", row.name, row.workers, own.epochs,
				killed["trainer"]+killed["stager"], killed["worker"], killed["stager"], all, lost, twice)
		})
	}
	t.Log("\n" + table.String())
}
