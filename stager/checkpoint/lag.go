package checkpoint

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// lags collects how far the store is behind, by output. The values are computed on each scrape,
// because those of the last scan of the directory would be seconds old.
type lags struct {
	desc *prometheus.Desc

	mu sync.Mutex // guards of
	of map[string]func() time.Duration
}

var _ prometheus.Collector = (*lags)(nil)

func newLags() *lags {
	return &lags{
		desc: prometheus.NewDesc("stager_checkpoint_lag_seconds",
			"How long the newest complete checkpoint has waited for its COMMIT: the work that a crash would lose now. Alert on it.", []string{"output"}, nil),
		of: make(map[string]func() time.Duration),
	}
}

func (l *lags) report(output string, lag func() time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of[output] = lag
}

// Describe implements prometheus.Collector.
func (l *lags) Describe(descs chan<- *prometheus.Desc) { descs <- l.desc }

// Collect implements prometheus.Collector.
func (l *lags) Collect(metrics chan<- prometheus.Metric) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for output, lag := range l.of {
		metrics <- prometheus.MustNewConstMetric(l.desc, prometheus.GaugeValue, lag().Seconds(), output)
	}
}

// lag returns how long the newest complete checkpoint has waited for its COMMIT.
func (u *Uploader) lag() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.lagLocked()
}
