package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// garbage is how much may lie beside what is in use, in percent. Nearly all of that is
// buffers, which cost a collection nothing, and memory is the trainer's.
const garbage = 40

// manifestGarbage is that of commands that work on manifests: they end soon, or keep next
// to nothing of what they read, so that collecting seldom costs little memory and much
// time less.
const manifestGarbage = 400

// spareMemory keeps garbage little, unless GOGC says otherwise.
func spareMemory() { collectAt(garbage) }

func collectAt(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// batchHeap is how large the heap of a command that ends may become, whatever is in use of
// it: where that is little, as with small files from near by, garbage would be collected
// all the time.
const batchHeap = 12 << 20

// spareTime is spareMemory for such a command: garbage is collected where the heap has
// batchHeap, and later where more is in use.
func spareTime() {
	if os.Getenv("GOGC") != "" {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	set := garbage
	type cycle struct{ _ *cycle }
	var collected func(*cycle)
	collected = func(*cycle) {
		metrics.Read(live)
		percent := int(100*batchHeap/max(live[0].Value.Uint64(), 1)) - 100
		percent = min(max(percent, garbage), manifestGarbage)
		if percent > set+set/8 || percent < set-set/8 {
			debug.SetGCPercent(percent)
			set = percent
		}
		runtime.SetFinalizer(new(cycle), collected)
	}
	collected(nil)
}

// A process that allocates less than idleBytes in an idleTime does nothing worth speaking
// of: it waits for readers, or for a checkpoint.
const (
	idleTime  = 30 * time.Second
	idleBytes = 1 << 20
)

// spareIdleMemory gives the system back what work has left behind, once each time that
// it ends: the collector would keep it, since nothing calls for a collection.
func spareIdleMemory(ctx context.Context) {
	tick := time.NewTicker(idleTime)
	defer tick.Stop()
	allocated := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	var before uint64
	worked := true
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		metrics.Read(allocated)
		now := allocated[0].Value.Uint64()
		idle := now-before < idleBytes
		if idle && worked {
			runtime.GC() // the first leaves what is pooled, for the second
			debug.FreeOSMemory()
		}
		before, worked = now, !idle
	}
}

// AfterApply is kong's, for each command with the flags of pods.
func (pods) AfterApply() error {
	collectAt(manifestGarbage)
	return nil
}
