package backends

import (
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

func (m *Metrics) observe(scheme, op string, err error, took time.Duration) {
	result := "ok"
	if err != nil {
		result = KindOf(err).String()
	}
	m.requests.WithLabelValues(scheme, op, result).Inc()
	m.seconds.WithLabelValues(scheme, op).Observe(took.Seconds())
}
