package admission

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the webhook's metrics. All exist before the first request.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  prometheus.Histogram
	failures *prometheus.CounterVec
}

func newMetrics(expires func() time.Time) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stager_webhook_requests_total", Help: "AdmissionReviews by outcome.",
		}, []string{"outcome"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "stager_webhook_seconds", Help: "Duration of a response.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .5, 1, 5},
		}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stager_webhook_sync_failures_total", Help: "Failures to read or renew the certificate or the plans.",
		}, []string{"what"}),
	}
	expiry := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "stager_webhook_certificate_expires_seconds", Help: "Expiry of the serving certificate, as Unix time; 0 without a certificate.",
	}, func() float64 {
		if t := expires(); !t.IsZero() {
			return float64(t.Unix())
		}
		return 0
	})
	m.registry.MustRegister(m.requests, m.seconds, m.failures, expiry)
	for _, o := range outcomes {
		m.requests.WithLabelValues(string(o))
	}
	for _, what := range []string{whatCertificate, whatPlans} {
		m.failures.WithLabelValues(what)
	}
	return m
}
