package download

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Phase is the phase of a prefetch.
type Phase string

// The phases, in order.
const (
	Listing  Phase = "listing" // lists the source and compares it with the directory
	Fetching Phase = "fetching"
	Syncing  Phase = "syncing" // waits for the disk
	Done     Phase = "done"
)

// Progress is the progress of a prefetch.
type Progress struct {
	Phase          Phase `json:"phase"`
	Files          int   `json:"files"`      // complete, including warm ones
	FilesTotal     int   `json:"filesTotal"` // grows while listing
	WarmFiles      int   `json:"warmFiles"`  // present before
	Bytes          int64 `json:"bytes"`      // present, including those of warm and resumed files
	BytesTotal     int64 `json:"bytesTotal"`
	BytesPerSecond int64 `json:"bytesPerSecond"`     // over the last seconds
	Unpacked       int   `json:"unpacked,omitempty"` // files from archives, in this run
}

// meter counts and reports progress.
type meter struct {
	phase                    atomic.Value // Phase
	files, filesTotal, warm  atomic.Int64
	bytes, bytesTotal, moved atomic.Int64 // moved: received from the network
	unpacked                 atomic.Int64
}

const (
	reportEvery = 200 * time.Millisecond
	rateOver    = 5 * time.Second
)

// arrived counts bytes received from the store.
func (m *meter) arrived(n int64) {
	m.bytes.Add(n)
	m.moved.Add(n)
}

func (m *meter) now(rate float64) Progress {
	phase, _ := m.phase.Load().(Phase)
	return Progress{
		Phase: phase, Files: int(m.files.Load()), FilesTotal: int(m.filesTotal.Load()), WarmFiles: int(m.warm.Load()),
		Bytes: m.bytes.Load(), BytesTotal: m.bytesTotal.Load(), BytesPerSecond: int64(rate), Unpacked: int(m.unpacked.Load()),
	}
}

// start reports from one goroutine until stop is called; stop reports once more.
func (m *meter) start(report func(Progress)) (stop func()) {
	if report == nil {
		return func() {}
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(reportEvery)
		defer tick.Stop()
		// An exponentially weighted mean: recent intervals count most.
		var mean, weight float64
		last, before := m.moved.Load(), time.Now()
		for {
			select {
			case <-done:
				report(m.now(0))
				return
			case now := <-tick.C:
				moved, took := m.moved.Load(), now.Sub(before).Seconds()
				keep := math.Exp(-took / rateOver.Seconds())
				mean = keep*mean + (1-keep)*float64(moved-last)/max(took, 1e-3)
				weight = keep*weight + (1 - keep)
				last, before = moved, now
				report(m.now(mean / max(weight, 1e-3)))
			}
		}
	})
	return sync.OnceFunc(func() { close(done); wg.Wait() })
}
