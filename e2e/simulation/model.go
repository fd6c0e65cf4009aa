package simulation

import "time"

// Site is what is simulated.
type Site struct {
	Jobs, NodesEach, PodsEach int           // jobs, nodes of a job, pods of a node
	Shards                    int           // of a job's dataset
	ShardSize                 int64         // in bytes
	Checkpoint                int64         // bytes that a pod saves
	Every                     time.Duration // time between two saves
	Keep                      int           // checkpoints that stay in the store
	Epochs                    int           // in the year
}

// Large is 1,000 nodes of 8 pods, a GPU each, and 10 PB of shards.
var Large = Site{
	Jobs: 10, NodesEach: 100, PodsEach: 8, Shards: 3_725_291, ShardSize: 256 << 20,
	Checkpoint: 256 << 20, Every: 30 * time.Minute, Keep: 3, Epochs: 12,
}

// Pods returns the number of pods of a job.
func (s Site) Pods() int { return s.NodesEach * s.PodsEach }

// The unexpected interruptions of a job, by "The Llama 3 Herd of Models" (2024), section 3.3.4 and table 5:
// 419 in 54 days on 16,384 GPUs.
const (
	interruptions    = 419
	interruptionDays = 54
	interruptionGPUs = 16_384
)

// prices are those of the providers' public pages, in US dollars, as of June 2025: "Amazon S3 pricing",
// Standard in US East (N. Virginia), and "Cloud Storage pricing", Standard in one region, flat namespace.
// Requests are per thousand. DELETE costs nothing at both, nor does traffic within a region.
var prices = []struct {
	provider     string
	write        float64 // PUT, POST and LIST
	read         float64 // GET and HEAD
	storageMonth float64 // of a GB, at the level of petabytes
}{
	{"Amazon S3, Standard", 0.005, 0.0004, 0.021},
	{"Google Cloud Storage, Standard", 0.005, 0.0004, 0.020},
}

// limits of Amazon S3 for each partitioned prefix, by "Best practices design patterns: optimizing Amazon S3
// performance": 5,500 GET or HEAD requests a second, above which it answers 503.
const readsPerSecond = 5500
