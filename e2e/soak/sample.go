package soak

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// measure is something that is sampled, and what its trend is judged by.
type measure struct {
	name, unit string
	floor      float64 // what the level is at least when a trend is judged
	noisy      bool    // faults change it by more than any run can average: it needs not be proved flat
}

var (
	memory      = measure{name: "memory", unit: "MiB", floor: 16}
	descriptors = measure{name: "open files", floor: 16}
	goroutines  = measure{name: "goroutines", floor: 16}
	onDisk      = measure{name: "disk", unit: "KiB", floor: 256}
	state       = measure{name: "own files", unit: "KiB", floor: 64}
	objects     = measure{name: "objects in the store", floor: 16}
	half        = measure{name: "request, median", unit: "ms", floor: 10, noisy: true}
	most        = measure{name: "request, 99 %", unit: "ms", floor: 100, noisy: true}
)

// series is a measure of one node over time.
type series struct {
	measure
	node   *node
	points []point
}

// meter samples a node.
type meter struct {
	*node
	before   map[float64]float64 // bucket → requests up to it, at the last sample
	requests float64             // at the last sample
	progress float64             // acknowledged shards or committed checkpoints of this life
	total    float64             // the same of all lives
	moved    time.Time           // when that last changed
}

// sampleOften samples all nodes until ctx ends.
func (s *soak) sampleOften(ctx context.Context) error {
	every := min(max(s.For/600, 250*time.Millisecond), 5*time.Second)
	var meters []*meter
	for _, n := range s.nodes() {
		meters = append(meters, &meter{node: n, before: make(map[float64]float64), moved: time.Now()})
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, m := range meters {
			m.work = m.total
		}
	}()
	for pause(ctx, every) {
		for _, m := range meters {
			if err := m.sample(); err != nil {
				return err
			}
			if time.Since(m.moved) > stalls {
				s.breach("%s has made no progress for %v\n%s", m.name, stalls, m.tail())
				m.moved = time.Now()
			}
		}
	}
	return nil
}

func (m *meter) sample() error {
	p := m.current()
	if !p.running() {
		if m.steady {
			return fmt.Errorf("%s ended by itself: %w\n%s", m.name, p.err, m.tail())
		}
		return nil // it is just killed
	}
	at := fmt.Sprintf("/proc/%d/", p.cmd.Process.Pid)
	if fds, err := os.ReadDir(at + "fd"); err == nil {
		m.add(descriptors, float64(len(fds)))
	}
	if kib, ok := rss(at + "status"); ok {
		m.add(memory, kib/1024)
	}
	used, err := m.used()
	if err != nil {
		return err
	}
	m.add(onDisk, float64(used)/1024)
	m.add(state, sizeOf(filepath.Join(m.dir, "data", ".stager"), "journal", "reports")+sizeOf(filepath.Join(m.dir, "out", ".stager"), ""))
	if !strings.HasPrefix(m.name, "feed") {
		m.add(objects, countOf(filepath.Join(m.Work, "store", "objects", Bucket, m.name)))
	}
	families, err := m.scrape()
	if err != nil {
		return nil // it is coming up, or has just been killed
	}
	m.add(goroutines, sum(families["stager_process_goroutines"]))
	m.latency(families["stager_store_request_seconds"])
	now := sum(families["stager_window_acknowledged_total"]) + sum(families["stager_checkpoint_committed_total"])
	if now < m.progress {
		m.progress = 0 // of a new life
	}
	if now > m.progress {
		m.total += now - m.progress
		m.progress, m.moved = now, time.Now()
	}
	return nil
}

func (m *meter) add(of measure, value float64) {
	m.soak.mu.Lock()
	defer m.soak.mu.Unlock()
	key := m.name + " " + of.name
	if m.series[key] == nil {
		m.series[key] = &series{measure: of, node: m.node}
	}
	m.series[key].points = append(m.series[key].points, point{time.Since(m.began).Seconds(), value})
}

// scrape reads the metrics.
func (m *meter) scrape() (map[string]*dto.MetricFamily, error) {
	resp, err := m.client.Get("http://stager/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() // read whole
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(resp.Body)
}

// sum adds up all metrics of a family.
func sum(family *dto.MetricFamily) (all float64) {
	for _, m := range family.GetMetric() {
		all += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return all
}

// latency adds the median and the 99th percentile of the requests since the last sample.
func (m *meter) latency(family *dto.MetricFamily) {
	now, all := make(map[float64]float64), 0.0
	for _, metric := range family.GetMetric() {
		all += float64(metric.GetHistogram().GetSampleCount())
		for _, b := range metric.GetHistogram().GetBucket() {
			now[b.GetUpperBound()] += float64(b.GetCumulativeCount())
		}
	}
	since := make(map[float64]float64)
	for upper, n := range now {
		since[upper] = n - m.before[upper]
	}
	all, m.before, m.requests = all-m.requests, now, all
	if all < 1 {
		return // none, or the daemon is another one
	}
	m.add(half, 1000*percentile(since, all, 0.5))
	m.add(most, 1000*percentile(since, all, 0.99))
}

// percentile returns where a part of all values lies, given how many lie below each bound. Values are
// taken to be spread evenly between two bounds.
func percentile(below map[float64]float64, all, part float64) float64 {
	at, before := 0.0, 0.0
	for _, upper := range slices.Sorted(maps.Keys(below)) {
		n := below[upper]
		if math.IsInf(upper, 1) {
			break
		}
		if n >= part*all {
			return at + (upper-at)*(part*all-before)/max(n-before, 1)
		}
		at, before = upper, n
	}
	return at
}

// rss returns the resident memory in KiB.
func rss(status string) (kib float64, ok bool) {
	file, err := os.Open(status)
	if err != nil {
		return 0, false
	}
	defer file.Close() // opened for reading
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 1 && fields[0] == "VmRSS:" {
			kib, err = strconv.ParseFloat(fields[1], 64)
			return kib, err == nil
		}
	}
	return 0, false
}

// sizeOf returns the KiB of files and directories of these names below a directory.
func sizeOf(dir string, names ...string) (kib float64) {
	for _, name := range names {
		_ = filepath.WalkDir(filepath.Join(dir, name), func(_ string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil //nolint:nilerr // what vanishes meanwhile is not there
			}
			if info, err := d.Info(); err == nil {
				kib += float64(info.Size()) / 1024
			}
			return nil
		})
	}
	return kib
}

// countOf returns the number of files below a directory.
func countOf(dir string) (n float64) {
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			n++
		}
		return nil // what vanishes meanwhile is not there
	})
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	return n
}
