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
	listing       *prometheus.GaugeVec
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
		items: gauge("stager_window_items", "Shards in the window by state. Many ready shards mean that readers are slower than the store; none mean that readers wait for it.", "state"),
		bytes: gauge("stager_window_bytes", "Bytes in the window by state. Zombie bytes belong to acknowledged files that are still open.", "state"),
		limit: gauge("stager_window_limit_bytes", "The window's size, which the sum of stager_window_bytes never exceeds. Raise it if it is reached while readers wait."),
		peak:  gauge("stager_window_peak_bytes", "Peak disk usage of the window. Far below the limit: the window can be smaller."),
		epoch: gauge("stager_window_epoch", "The epoch that is delivered, from 0."),
		listing: gauge("stager_window_listing_objects",
			"Objects that the listing of the window's source has found so far; 0 once it is complete. Shards beyond the first of them, and the end of the epoch, wait for it."),
		delivered: counter("stager_window_delivered_total",
			"Leases and claims. An excess over acknowledged shards beyond what readers hold means that readers die or reject shards."),
		redelivered:  counter("stager_window_redelivered_total", "Repeated deliveries of a shard. Rising: check why readers exit without acknowledging."),
		acknowledged: counter("stager_window_acknowledged_total", "Acknowledged shards: the position in the plan. Not rising: see stager status."),
		reused:       counter("stager_window_reused_total", "Shards kept for the next epoch (reuse) and not fetched again."),
		fetchFailures: counter("stager_window_fetch_failures_total",
			"Failed fetches by kind. corrupt and gone: repair the source; disk: free space; other: check the store.", "kind"),
		skipped: counter("stager_window_skipped_total", "Positions skipped under onBad: skip or allow, and missing from training. The status lists each."),
		waits: counter("stager_window_wait_seconds_total",
			"Seconds that readers without a lease have waited, by cause. backend: use a faster store or more parallel fetches; network: bandwidth; disk: free space; budget: a larger window, or readers that hold less; readers: other readers. The status gives numbers.", "cause"),
	}
	if reg != nil {
		reg.MustRegister(m.items, m.bytes, m.limit, m.peak, m.epoch, m.listing, m.delivered, m.redelivered, m.acknowledged, m.reused,
			m.fetchFailures, m.skipped, m.waits)
	}
	return m
}

// Listing reports how many objects of an input the caller has listed so far; 0: all.
func (m *Metrics) Listing(input string, objects int64) {
	m.listing.WithLabelValues(input).Set(float64(objects))
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
	m.listing.With(own)
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
