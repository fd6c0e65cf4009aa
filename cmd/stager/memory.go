package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// garbage is the GOGC value: how much garbage may accumulate, in percent of the memory in use.
// Nearly all memory is buffers, which are cheap to collect, and the trainer needs the memory.
const garbage = 40

// manifestGarbage is the GOGC value of commands that process manifests. They end soon, or retain
// almost nothing of what they read, so that infrequent collection costs little memory and saves
// much time.
const manifestGarbage = 400

// spareMemory collects garbage early, unless GOGC is set.
func spareMemory() { collectAt(garbage) }

func collectAt(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// batchHeap is how large the heap of a command that ends may become, regardless of how much is in
// use. If little is in use, as with small files from a nearby store, the collector would otherwise
// run constantly.
const batchHeap = 12 << 20

// spareTime is spareMemory for such a command: the collector runs when the heap reaches batchHeap,
// or later if more is in use.
func spareTime() {
	collectBy(func(live uint64) int { return min(max(int(100*batchHeap/live)-100, garbage), manifestGarbage) })
}

// daemonGarbage is how many bytes of garbage a daemon may have. A window over millions of objects has 30 to 80 MB in
// use, nearly all without pointers, which takes a millisecond to collect.
const daemonGarbage = 6 << 20

// spareDaemonMemory is spareMemory for a daemon.
func spareDaemonMemory() {
	collectBy(func(live uint64) int { return min(max(int(100*daemonGarbage/live), 5), garbage) })
}

// collectBy sets the percentage of garbage after each collection, given the bytes that were in use, unless
// GOGC is set.
func collectBy(percent func(live uint64) int) {
	if os.Getenv("GOGC") != "" {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	set := garbage
	type cycle struct{ _ *cycle }
	var collected func(*cycle)
	collected = func(*cycle) {
		metrics.Read(live)
		now := percent(max(live[0].Value.Uint64(), 1))
		if now > set+set/8 || now < set-set/8 {
			debug.SetGCPercent(now)
			set = now
		}
		runtime.SetFinalizer(new(cycle), collected)
	}
	collected(nil)
}

// A process that allocates less than idleBytes in idleTime is idle: it waits for readers, or for a
// checkpoint.
const (
	idleTime  = 30 * time.Second
	idleBytes = 1 << 20
)

// spareIdleMemory returns unused memory to the system each time that the process becomes idle. The
// collector would retain it, since nothing triggers a collection.
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
			runtime.GC() // the first collection moves pooled buffers, the second frees them
			debug.FreeOSMemory()
		}
		before, worked = now, !idle
	}
}

// AfterApply is called by kong for each command with the flags of pods.
func (pods) AfterApply() error {
	collectAt(manifestGarbage)
	return nil
}
