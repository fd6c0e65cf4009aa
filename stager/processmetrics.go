package stager

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
)

// RegisterProcessMetrics registers the metrics of the process as a whole.
func RegisterProcessMetrics(reg prometheus.Registerer) {
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "stager_process_goroutines",
		Help: "Goroutines of the process. It changes with the number of requests and readers. Rising from day to day: report it.",
	}, func() float64 { return float64(runtime.NumGoroutine()) }))
}
