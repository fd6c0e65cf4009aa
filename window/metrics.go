package window

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the Prometheus metrics of windows, by input. One value serves all windows of a
// process.
type Metrics struct {
	items, bytes  *prometheus.GaugeVec
	limit, peak   *prometheus.GaugeVec
	epoch         *prometheus.GaugeVec
	delivered     *prometheus.CounterVec
	redelivered   *prometheus.CounterVec
	acknowledged  *prometheus.CounterVec
	reused        *prometheus.CounterVec
	fetchFailures *prometheus.CounterVec
	skipped       *prometheus.CounterVec
	waits         *prometheus.CounterVec
}

// NewMetrics registers the metrics with reg. nil: they are counted but not exported.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help},
			append([]string{"input"}, labels...))
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help},
			append([]string{"input"}, labels...))
	}
	m := &Metrics{
		items: gauge("stager_window_items", "Shards in the window by state; many ready ones mean that readers are slower than the store, none that they wait for it.", "state"),
		bytes: gauge("stager_window_bytes", "Bytes in the window by state; zombie bytes are of files that somebody keeps open after acknowledging them.", "state"),
		limit: gauge("stager_window_limit_bytes", "The bound that the sum of stager_window_bytes never passes; raise the window's size when it is reached while readers wait."),
		peak:  gauge("stager_window_peak_bytes", "The most bytes that the window has taken."),
		epoch: gauge("stager_window_epoch", "The epoch that is being delivered, from 0."),
		delivered: counter("stager_window_delivered_total",
			"Leases and claims given; more than acknowledged by more than what readers hold means that readers die or refuse shards."),
		redelivered:  counter("stager_window_redelivered_total", "Deliveries of a shard after its first; look at why readers end without acknowledging."),
		acknowledged: counter("stager_window_acknowledged_total", "Shards that are done with; this is the position in the plan."),
		reused:       counter("stager_window_reused_total", "Shards that stayed for the next epoch and were not fetched again."),
		fetchFailures: counter("stager_window_fetch_failures_total",
			"Tries to fetch a shard that ended in an error: corrupt and gone need the source repaired, disk needs room, other is the store.", "kind"),
		skipped: counter("stager_window_skipped_total", "Positions that were given up; each is named in the status and missing from training."),
		waits: counter("stager_window_wait_seconds_total",
			"Seconds in which a reader waited and held nothing. backend: a faster store or more parallel fetches; network: bandwidth; disk: room on it; budget: a larger window, or readers that hold less; readers: the others. The status says it with numbers.", "cause"),
	}
	if reg != nil {
		reg.MustRegister(m.items, m.bytes, m.limit, m.peak, m.epoch, m.delivered, m.redelivered, m.acknowledged, m.reused,
			m.fetchFailures, m.skipped, m.waits)
	}
	return m
}

// meters are the metrics of one window, resolved once.
type meters struct {
	items, bytes                                  map[State]prometheus.Gauge
	peak, epoch                                   prometheus.Gauge
	delivered, redelivered, acknowledged, skipped prometheus.Counter
	reused                                        prometheus.Counter
	fetchFailures, waits                          *prometheus.CounterVec
}

// of returns a window's metrics, initialized to zero, so that they exist before the first event.
func (m *Metrics) of(input string, limit int64) meters {
	own := prometheus.Labels{"input": input}
	w := meters{
		items: map[State]prometheus.Gauge{}, bytes: map[State]prometheus.Gauge{},
		peak: m.peak.With(own), epoch: m.epoch.With(own),
		delivered: m.delivered.With(own), redelivered: m.redelivered.With(own),
		acknowledged: m.acknowledged.With(own), skipped: m.skipped.With(own),
		reused:        m.reused.With(own),
		fetchFailures: m.fetchFailures.MustCurryWith(own), waits: m.waits.MustCurryWith(own),
	}
	m.limit.With(own).Set(float64(limit))
	for _, s := range holding {
		w.items[s] = m.items.WithLabelValues(input, string(s))
		w.bytes[s] = m.bytes.WithLabelValues(input, string(s))
		w.state(s, total{})
	}
	for _, kind := range []string{failCorrupt, failGone, failDisk, failOther} {
		w.fetchFailures.WithLabelValues(kind)
	}
	for _, cause := range causes {
		w.wait(cause, 0)
	}
	return w
}

func (m meters) state(s State, t total) {
	m.items[s].Set(float64(t.items))
	m.bytes[s].Set(float64(t.bytes))
}

func (m meters) wait(cause Cause, d time.Duration) {
	m.waits.WithLabelValues(string(cause)).Add(d.Seconds())
}
