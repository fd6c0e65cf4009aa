package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Result is a Row with its medians.
type Result struct {
	Store  string `json:"store"`
	Work   string `json:"work"`
	Peer   string `json:"peer"`
	Bytes  int64  `json:"bytes"`
	Files  int64  `json:"files,omitempty"`
	Ours   Sample `json:"ours"`
	Theirs Sample `json:"theirs"`
	Ratios Ratios `json:"ratios"` // of each pair

	OurRuns   Runs `json:"ourRuns"`
	TheirRuns Runs `json:"theirRuns"`

	Floor     Sample `json:"floor,omitzero"` // without memory and time where the row has none
	FloorRuns Runs   `json:"floorRuns,omitzero"`

	Goal   Goal     `json:"goal,omitzero"`
	Missed []string `json:"missed,omitempty"` // of the goals, with what came instead
}

// Runs are the times of all runs of one command, in their order and without the first, which
// warms up.
type Runs struct {
	Wall []float64 `json:"wall"` // seconds
	CPU  []float64 `json:"cpu"`  // seconds
}

func runsOf(samples []Sample) (all Runs) {
	for _, s := range samples {
		all.Wall, all.CPU = append(all.Wall, s.Wall.Seconds()), append(all.CPU, s.CPU.Seconds())
	}
	return all
}

// floorRatio is the ratio that the floor reaches beside the peer: the median of those of the turns, or 0 without a floor.
func (r Result) floorRatio() float64 {
	var ratios Ratios
	for i, s := range r.FloorRuns.Wall {
		ratios = append(ratios, r.TheirRuns.Wall[i]/s)
	}
	if len(ratios) == 0 {
		return 0
	}
	return ratios.Median()
}

// perGB is CPU time, in seconds for each GB.
func (r Result) perGB(s Sample) float64 { return s.CPU.Seconds() / float64(r.Bytes) * 1e9 }

// Run runs all rows of a suite, each at least pairs times and once before to warm up,
// until their ratio is sure or patience is at its end, and tells each result as it comes.
// chosen, when it is not nil, chooses the rows.
func Run(ctx context.Context, suite Suite, lab *Lab, pairs int, chosen func(Row) bool, tell func(Result)) (note string, err error) {
	rows, note, stop, err := suite.Start(ctx, lab)
	if err != nil {
		return "", fmt.Errorf("%s: %w", suite.Name, err)
	}
	defer func() { err = errors.Join(err, stop()) }()
	for _, row := range rows {
		if chosen != nil && !chosen(row) {
			continue
		}
		results, err := row.run(ctx, pairs, suite.Patience)
		if err != nil {
			return note, fmt.Errorf("%s, %s: %w", row.Store, row.Work, err)
		}
		for _, r := range results {
			tell(r)
		}
	}
	return note, nil
}

// run returns a result for each peer. One run of stager is compared with one of each, in an order that
// rotates, until all ratios are sure or the time may has passed; 0 stands for the usual time.
func (row Row) run(ctx context.Context, pairs int, may time.Duration) ([]Result, error) {
	rivals := append([]Rival{{row.Peer, row.Theirs, row.Goal}}, row.Rivals...)
	runs := []Command{row.Ours}
	for _, rival := range rivals {
		runs = append(runs, rival.Command)
	}
	if row.Floor != nil {
		runs = append(runs, row.Floor)
	}
	turn := func(first int) (samples []Sample, err error) {
		samples = make([]Sample, len(runs))
		for i := range runs {
			who := (first + i) % len(runs)
			if samples[who], err = row.once(ctx, runs[who]); err != nil && who == 0 {
				return nil, fmt.Errorf("stager: %w", err)
			} else if err != nil && who > len(rivals) {
				return nil, fmt.Errorf("the floor: %w", err)
			} else if err != nil {
				return nil, fmt.Errorf("%s: %w", rivals[who-1].Peer, err)
			}
		}
		return samples, nil
	}
	if _, err := turn(0); err != nil {
		return nil, err
	}
	may = cmp.Or(may, row.usualPatience())
	results := make([]Result, len(rivals))
	for i, rival := range rivals {
		results[i] = Result{Store: row.Store, Work: row.Work, Peer: rival.Peer, Bytes: row.Bytes, Files: row.Files, Goal: rival.Goal}
	}
	all := make([][]Sample, len(runs))
	for start := time.Now(); slices.ContainsFunc(results, func(r Result) bool { return !r.Ratios.enough(pairs, time.Since(start), may) }); {
		samples, err := turn(len(all[0])) // a run may leave work to the one behind it, each time to another
		if err != nil {
			return nil, err
		}
		for i, s := range samples {
			all[i] = append(all[i], s)
		}
		for i := range results {
			results[i].Ratios = append(results[i].Ratios, row.time(samples[1+i])/row.time(samples[0]))
		}
	}
	for i := range results {
		r := &results[i]
		r.Ours, r.Theirs = median(all[0]), median(all[1+i])
		r.OurRuns, r.TheirRuns = runsOf(all[0]), runsOf(all[1+i])
		if row.Floor != nil {
			floor := all[len(all)-1]
			r.Floor, r.FloorRuns = median(floor), runsOf(floor)
		}
		r.Missed = r.missed()
	}
	return results, nil
}

// usualPatience is how long a row is run, if its suite does not say.
func (row Row) usualPatience() time.Duration {
	switch {
	case len(row.Rivals) > 0:
		return rivalPatience
	case row.HasGoal():
		return goalPatience
	}
	return patience
}

// time is what the ratio is of, in seconds: of trainers with Loop it is that of their loop.
func (row Row) time(s Sample) float64 {
	if row.Loop {
		return s.Reading.Seconds
	}
	return s.Wall.Seconds()
}

func (row Row) once(ctx context.Context, command Command) (Sample, error) {
	if err := ctx.Err(); err != nil {
		return Sample{}, err
	}
	if err := row.Reset(ctx); err != nil {
		return Sample{}, err
	}
	s, err := measure(command())
	if err != nil {
		return Sample{}, err
	}
	if row.Reading != "" {
		if err := s.read(row.Reading); err != nil {
			return Sample{}, err
		}
	}
	return s, row.Check(ctx)
}

// median is that of wall and CPU times, each by itself, and the greatest peak; a trainer's
// reading is that of the run with the median of waits.
func median(all []Sample) (m Sample) {
	byWait := slices.SortedFunc(slices.Values(all), func(a, b Sample) int { return cmp.Compare(a.waited(), b.waited()) })
	m.Reading = byWait[len(all)/2].Reading
	var wall, cpu []time.Duration
	for _, s := range all {
		wall, cpu, m.RSS = append(wall, s.Wall), append(cpu, s.CPU), max(m.RSS, s.RSS)
	}
	m.Wall, m.CPU = middle(wall), middle(cpu)
	return m
}

func (s Sample) waited() float64 {
	if s.Reading == nil {
		return 0
	}
	return s.Reading.Waited
}

func middle[T time.Duration | float64](all []T) T {
	all = slices.Sorted(slices.Values(all))
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}
