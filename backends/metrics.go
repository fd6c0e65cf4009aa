package backends

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics count store operations by scheme. One value serves all stores of a process.
type Metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	retries  *prometheus.CounterVec
	hedges   *prometheus.CounterVec
	bytes    *prometheus.CounterVec

	received atomic.Int64
}

// Received returns how many object bytes all stores have read so far.
func (m *Metrics) Received() int64 { return m.received.Load() }

// NewMetrics returns metrics registered with reg. With a nil reg they are counted but not exported.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stager_store_requests_total",
			Help: "Requests to stores by operation and result. A rising share other than ok means that the store or its credentials fail.",
		}, []string{"scheme", "op", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "stager_store_request_seconds",
			Help:    "Time per request, including its body.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9),
		}, []string{"scheme", "op"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stager_store_retries_total",
			Help: "Retried requests by kind of error. throttled: use fewer --connections.",
		}, []string{"scheme", "op", "kind"}),
		hedges: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stager_store_hedges_total",
			Help: "Hedged reads: a second request was sent because the response was unusually late, by which of them was answered first. Many second: some of the store's servers are slow.",
		}, []string{"scheme", "answered"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stager_store_bytes_total",
			Help: "Object bytes transferred, by direction.",
		}, []string{"scheme", "direction"}),
	}
	if reg != nil {
		reg.MustRegister(m.requests, m.seconds, m.retries, m.hedges, m.bytes)
	}
	return m
}

// schemeMetrics are the Metrics of one scheme. They keep what WithLabelValues returns, which takes
// longer than to count. A metric appears when it is first counted.
type schemeMetrics struct {
	*Metrics
	scheme      string
	ops         sync.Map // of *operationMetrics, by operation
	read, write func() prometheus.Counter
}

// operationMetrics count the attempts of one operation.
type operationMetrics struct {
	ok      prometheus.Counter
	seconds prometheus.Observer
}

// of returns the metrics of a scheme.
func (m *Metrics) of(scheme string) *schemeMetrics {
	bytes := func(direction string) func() prometheus.Counter {
		return sync.OnceValue(func() prometheus.Counter { return m.bytes.WithLabelValues(scheme, direction) })
	}
	return &schemeMetrics{Metrics: m, scheme: scheme, read: bytes("read"), write: bytes("write")}
}

// observe counts an attempt.
func (m *schemeMetrics) observe(op string, err error, took time.Duration) {
	if err != nil {
		m.requests.WithLabelValues(m.scheme, op, KindOf(err).String()).Inc()
		m.seconds.WithLabelValues(m.scheme, op).Observe(took.Seconds())
		return
	}
	known, ok := m.ops.Load(op)
	if !ok {
		known, _ = m.ops.LoadOrStore(op, &operationMetrics{m.requests.WithLabelValues(m.scheme, op, "ok"), m.seconds.WithLabelValues(m.scheme, op)})
	}
	counts := known.(*operationMetrics)
	counts.ok.Inc()
	counts.seconds.Observe(took.Seconds())
}

// arrived counts n bytes that were read.
func (m *schemeMetrics) arrived(n int) {
	m.read().Add(float64(n))
	m.received.Add(int64(n))
}

// sent counts n bytes that were written.
func (m *schemeMetrics) sent(n int64) { m.write().Add(float64(n)) }
