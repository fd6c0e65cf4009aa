package admission

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the webhook's metrics. All exist before the first request.
type Metrics struct {
	requests *prometheus.CounterVec
	seconds  prometheus.Histogram
	failures *prometheus.CounterVec
}

// NewMetrics registers the metrics with reg. expires returns when the serving certificate expires.
func NewMetrics(reg prometheus.Registerer, expires func() time.Time) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stager_webhook_requests_total", Help: "AdmissionReviews by outcome. refused: pods with errors that their users see; malformed: the webhook's rules were changed; late: requests that arrived late or waited too long, so give the webhook more CPU or replicas.",
		}, []string{"outcome"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "stager_webhook_seconds", Help: "Duration of a response; the API server waits for 5 s.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .5, 1, 5},
		}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stager_webhook_sync_failures_total", Help: "Failures to read or renew the certificate or the plans. Rising: permissions are missing, or the API server is unavailable, as the log says.",
		}, []string{"what"}),
	}
	expiry := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "stager_webhook_certificate_expires_seconds", Help: "Expiry of the serving certificate, as Unix time; 0 without a certificate. Alert if it is less than 20 days ahead.",
	}, func() float64 {
		if t := expires(); !t.IsZero() {
			return float64(t.Unix())
		}
		return 0
	})
	reg.MustRegister(m.requests, m.seconds, m.failures, expiry)
	for _, o := range outcomes {
		m.requests.WithLabelValues(string(o))
	}
	for _, what := range []string{whatCertificate, whatPlans} {
		m.failures.WithLabelValues(what)
	}
	return m
}
