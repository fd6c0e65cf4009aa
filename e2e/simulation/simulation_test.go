package simulation

import (
	"flag"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// update writes the page. The storms are then those of all pods of the site, which takes minutes.
var update = flag.Bool("update", false, "write docs/operations/at-scale.md")

const page = "../../docs/operations/at-scale.md"

// seed makes the year on the page the same for everybody.
const seed = 1

// storms are the rows of a table. All have so many requests a second for each pod as the whole site has, so
// that fewer pods give the same ratios.
var storms = []struct {
	name string
	away time.Duration
	run  func(Storm) (Wave, error)
	step bool
}{
	{name: "all start at once"},
	{name: "the store is away for a minute first", away: time.Minute},
	{name: "the first, if all waited alike", step: true},
}

const reads = 17 // of a pod that restores: 16 ranges and the index

// wave runs a storm of so many pods in virtual time.
func wave(t *testing.T, i, pods int) (s Storm, w Wave) {
	t.Helper()
	s = Storm{Pods: pods, Reads: reads, PerSecond: readsPerSecond * float64(pods) / float64(Large.Jobs*Large.Pods()), Away: storms[i].away, Seed: seed}
	synctest.Test(t, func(t *testing.T) {
		run := s.Run
		if storms[i].step {
			run = s.RunInStep
		}
		var err error
		if w, err = run(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	return s, w
}

// partitions are the rows of a table.
func partitions(t *testing.T) (all []Share) {
	t.Helper()
	for _, pods := range []int{8, 64, 128, 256, 420, 512, 800, 840} {
		share, err := Partition(Large.Shards/100, pods)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, share)
	}
	return all
}

// The page has what is computed now. The ratios of its storms are those of a smaller site.
func TestPageIsFresh(t *testing.T) {
	ops, err := Measure(t.Context(), Large, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	between := regexp.MustCompile(`(?s)(<!-- year -->\n\n)(.*?)(\n<!-- storms -->\n\n)(.*?)(\n<!-- end -->)`)
	parts := between.FindStringSubmatch(string(text))
	if parts == nil {
		t.Fatalf("%s has no marks for the tables", page)
	}
	want := deterministic(Large, ops, seed, partitions(t))
	const head = "| 8,000 pods restore | pods | seconds | at best | requests for one | peak of retries to mean |\n|---|--:|--:|--:|--:|--:|\n"
	if *update {
		rows := head
		for i := range storms {
			s, w := wave(t, i, Large.Jobs*Large.Pods())
			rows += waveRow(storms[i].name, s, w)
			t.Logf("%s: retries in each second: %v", storms[i].name, w.Retries)
		}
		out := strings.Replace(string(text), parts[0], parts[1]+want+parts[3]+rows+parts[5], 1)
		if err := os.WriteFile(page, []byte(out), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if parts[2] != want {
		t.Errorf("the page is not what is computed now: run make simulation\ngot\n%s\nwant\n%s", parts[2], want)
	}
	for i := range storms {
		_, w := wave(t, i, 80)
		row := regexp.MustCompile(regexp.QuoteMeta("| "+storms[i].name+" |") + ` [\d,]+ \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|`).FindStringSubmatch(parts[4])
		if row == nil {
			t.Errorf("the page has no row %q", storms[i].name)
			continue
		}
		for _, c := range []struct {
			what      string
			page, now float64
		}{
			{"seconds", number(t, row[1]), w.Took.Seconds()},
			{"requests for one", number(t, row[3]), w.Repeated()},
		} {
			if c.now > 1.5*c.page || c.page > 1.5*c.now {
				t.Errorf("%s: %s: the page has %v, and a smaller site gives %v", storms[i].name, c.what, c.page, c.now)
			}
		}
	}
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Retries of many pods come evenly: random pauses spread them. Without, they come at the same moments.
func TestRetriesOfManyPodsComeEvenly(t *testing.T) {
	for i, tt := range []struct{ least, most, slowdown float64 }{{1, 2, 1.8}, {1, 2.8, 1.8}, {3, 10, 10}} {
		_, w := wave(t, i, 160)
		t.Logf("%s: took %v, %v at best, %.2f requests for one, peak to mean %.1f", storms[i].name, w.Took, w.Best, w.Repeated(), w.PeakToMean())
		if got := w.PeakToMean(); got < tt.least || got > tt.most {
			t.Errorf("%s: in each second the peak of retries is %.1f times the mean, want %v to %v: %v", storms[i].name, got, tt.least, tt.most, w.Retries)
		}
		if got := w.Took.Seconds() / w.Best.Seconds(); got > tt.slowdown {
			t.Errorf("%s: it took %v, %.1f times as long as at best, want at most %v", storms[i].name, w.Took, got, tt.slowdown)
		}
	}
}

// Each position of an epoch has one pod, for every number of pods.
func TestPartitionDealsEachShardOnce(t *testing.T) {
	for pods := 1; pods <= 840; pods += 83 {
		share, err := Partition(10*840, pods)
		if err != nil {
			t.Errorf("%d pods: %v", pods, err)
		}
		if want := float64((840+pods-1)/pods) * float64(pods) / 840; math.Abs(share.Slowest-want) > 1e-3 {
			t.Errorf("%d pods: the largest part is %.3f of the mean, want %.3f", pods, share.Slowest, want)
		}
	}
}

// The number of failures is that of the published rate.
func TestYearHasFailuresOfTheRate(t *testing.T) {
	got := float64(Year(Large, Operations{}, seed).Failures)
	want := float64(interruptions) / interruptionDays / interruptionGPUs * float64(Large.Jobs*Large.Pods()) * 365
	if got < 0.9*want || got > 1.1*want {
		t.Errorf("got %v failures, want about %.0f", got, want)
	}
}
