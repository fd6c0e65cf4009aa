package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/plan"
)

// Share is how evenly an epoch is dealt.
type Share struct {
	Pods    int
	Slowest float64 // the largest part, of the mean one
	Idle    float64 // of the time of all pods, while they wait for the slowest
}

// Partition deals the positions of an epoch. It returns an error if a position has no pod or several.
func Partition(shards, pods int) (Share, error) {
	order, err := plan.Order(plan.OrderSpec{By: plan.Shuffle, Seed: 17}, plan.Manifest{Objects: numbered(shards)})
	if err != nil {
		return Share{}, err
	}
	owner := make([]int, plan.Stripes) // of the positions from 0 on, which repeats
	for at := range owner {
		owner[at] = -1
		for pod := range pods {
			if (plan.Shard{Index: pod, Count: pods}).Owns(at) {
				if owner[at] >= 0 {
					return Share{}, fmt.Errorf("position %d belongs to pods %d and %d", at, owner[at], pod)
				}
				owner[at] = pod
			}
		}
		if owner[at] < 0 {
			return Share{}, fmt.Errorf("position %d belongs to no pod", at)
		}
	}
	dealt, seen := make([]int, pods), make([]bool, shards)
	for at, shard := range order(0) {
		if seen[shard] {
			return Share{}, fmt.Errorf("shard %d is twice in the order", shard)
		}
		seen[shard] = true
		dealt[owner[at%plan.Stripes]]++
	}
	most, mean := float64(slices.Max(dealt)), float64(shards)/float64(pods)
	return Share{pods, most / mean, 1 - mean/most}, nil
}

// numbered are objects without names, of which an order needs none.
type numbered int

func (n numbered) Len() int { return int(n) }

func (n numbered) At(int) (backends.Object, error) { return backends.Object{}, nil }

// Totals are what a year took.
type Totals struct {
	Failures, Saves      int
	Reading, Starting    Requests // shards, and listings after each start
	Saving, Restoring    Requests
	Lost                 time.Duration // of the job's work since its last checkpoint, all failures together
	ReadBytes, SaveBytes int64
}

// Year draws the failures of a year and counts. A failure stops its whole job, which starts again from the
// last checkpoint: every pod lists its input and restores, and the work since then is done again.
func Year(s Site, ops Operations, seed uint64) (t Totals) {
	random := rand.New(rand.NewPCG(seed, 1))
	const year = 365 * 24 * time.Hour
	pods := int64(s.Pods())
	perDay := float64(interruptions) / interruptionDays / interruptionGPUs * float64(pods)
	listing := Requests{List: int64((s.Shards + pageSize - 1) / pageSize)}
	for range s.Jobs {
		t.Starting = t.Starting.plus(listing.times(pods))
		for at := time.Duration(0); ; {
			at += time.Duration(random.ExpFloat64() / perDay * 24 * float64(time.Hour))
			if at >= year {
				break
			}
			t.Failures++
			lost := time.Duration(random.Int64N(int64(s.Every)))
			t.Lost += lost
			t.Starting = t.Starting.plus(listing.times(pods))
			t.Restoring = t.Restoring.plus(ops.Restore.times(pods))
			again := int64(lost.Seconds() / year.Seconds() * float64(s.Epochs) * float64(s.Shards))
			t.Reading = t.Reading.plus(ops.Shard.times(again))
			t.ReadBytes += again*s.ShardSize + pods*s.Checkpoint
		}
		saves := int64(year / s.Every)
		t.Saves += int(saves)
		t.Saving = t.Saving.plus(ops.Save.plus(ops.Prune).times(saves * pods))
		t.SaveBytes += saves * pods * s.Checkpoint
		shards := int64(s.Epochs) * int64(s.Shards)
		t.Reading = t.Reading.plus(ops.Shard.times(shards))
		t.ReadBytes += shards * s.ShardSize
	}
	return t
}
