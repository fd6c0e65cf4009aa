package download

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Phase is what a prefetch is doing.
type Phase string

// The phases, in order.
const (
	Listing  Phase = "listing" // the source, and comparing it with what is here
	Fetching Phase = "fetching"
	Syncing  Phase = "syncing" // waiting for the disk
	Done     Phase = "done"
)

// Progress is how far a prefetch has come.
type Progress struct {
	Phase          Phase `json:"phase"`
	Files          int   `json:"files"`      // complete, with the warm ones
	FilesTotal     int   `json:"filesTotal"` // grows while listing
	WarmFiles      int   `json:"warmFiles"`  // were there before
	Bytes          int64 `json:"bytes"`      // here, with those of warm and resumed files
	BytesTotal     int64 `json:"bytesTotal"`
	BytesPerSecond int64 `json:"bytesPerSecond"`     // over the last seconds
	Unpacked       int   `json:"unpacked,omitempty"` // files that came out of archives, in this run
}

// meter counts, and tells of it.
type meter struct {
	phase                    atomic.Value // Phase
	files, filesTotal, warm  atomic.Int64
	bytes, bytesTotal, moved atomic.Int64 // moved: came over the network
	unpacked                 atomic.Int64
}

const (
	reportEvery = 200 * time.Millisecond
	rateOver    = 5 * time.Second
)

// arrived takes bytes that came from the store.
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

// start reports from one goroutine until stop is called, which reports once more.
func (m *meter) start(report func(Progress)) (stop func()) {
	if report == nil {
		return func() {}
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(reportEvery)
		defer tick.Stop()
		// A mean in which a moment counts the less the longer it is past.
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
