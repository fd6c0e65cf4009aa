package checkpoint

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/window/disk"
)

// pace is the throughput of the last checkpoint. It is stored on the disk as a hint, so that the
// next process can make a forecast when it starts.
type pace struct {
	Step   int64   `json:"step"`
	Bytes  int64   `json:"bytes"`
	Rate   float64 `json:"rate"`             // bytes per second
	Reused int64   `json:"reused,omitempty"` // bytes that did not have to be sent
}

const paceName = private + "/pace"

// needs returns how long the upload of so many bytes takes at a rate; 0: unknown. Of the last
// checkpoint, parts may have been sent from the burst of the bandwidth limit, or not at all because
// an earlier step had them. The measured rate may therefore exceed the limit, which applies to what
// is sent: all but the reused fraction.
func (u *Uploader) needs(bytes int64, rate, reused float64) time.Duration {
	seconds := 0.0
	if rate > 0 {
		seconds = float64(bytes) / rate
	}
	if limit, ok := u.cfg.Store.Bandwidth(); ok && limit > 0 {
		seconds = max(seconds, float64(bytes)*(1-reused)/limit)
	}
	return time.Duration(seconds * float64(time.Second))
}

// expected returns the rate of bytes that need so long.
func expected(bytes int64, need time.Duration) backends.Rate {
	return backends.Rate(float64(bytes) / max(need.Seconds(), 1e-9))
}

// reused returns which fraction of a checkpoint was not sent.
func (p pace) reused() float64 { return float64(p.Reused) / float64(max(p.Bytes, 1)) }

// keepPace stores how an upload went, and logs a forecast for the next one.
func (u *Uploader) keepPace(p pace) {
	if text, err := json.Marshal(p); err == nil {
		_ = disk.ReplaceSmall(u.root, paceName, text, 0o600, false) // a hint
	}
	u.logForecast(p)
}

// recallPace logs a forecast from the pace that an earlier process stored.
func (u *Uploader) recallPace() {
	var p pace
	if text, err := disk.ReadSmall(u.root, paceName, disk.Limit); err == nil && json.Unmarshal(text, &p) == nil && p.Bytes > 0 && p.Rate > 0 {
		u.logForecast(p)
	}
}

// logForecast warns if the newest checkpoint needs more time than the grace period.
func (u *Uploader) logForecast(p pace) {
	need := u.needs(p.Bytes, p.Rate, p.reused())
	u.cfg.Metrics.forecast.WithLabelValues(u.cfg.Output).Set(need.Seconds())
	if u.cfg.Grace > 0 && need > u.cfg.Grace {
		u.log.Warn("a checkpoint that completes when draining starts would be lost: use a longer grace period, or smaller checkpoints",
			"like_step", p.Step, "bytes", backends.Size(p.Bytes), "rate", expected(p.Bytes, need),
			"needs", need.Round(time.Second), "grace", u.cfg.Grace.Round(time.Second))
	}
}

// forecast logs whether the newest checkpoint will be saved before the deadline of ctx.
func (u *Uploader) forecast(ctx context.Context) {
	deadline, limited := ctx.Deadline()
	u.mu.Lock()
	defer u.mu.Unlock()
	rate := u.sending.last.Rate
	if up := u.sending.now; up != nil && up.done.Load() > 0 {
		rate = up.rate()
	}
	steps := u.pendingLocked()
	if len(steps) == 0 || !limited {
		return
	}
	left := totalSize(u.snaps[steps[0]].Files)
	if up := u.sending.now; up != nil && up.snap.Step == steps[0] {
		left -= up.done.Load()
	}
	need, grace := u.needs(left, rate, u.sending.last.reused()), time.Until(deadline)
	if rate <= 0 && need <= grace { // nothing was measured, and the bandwidth limit alone proves nothing
		return
	}
	level, words := slog.LevelInfo, "the newest checkpoint should be safe in time"
	if need > grace {
		level, words = slog.LevelError, "the newest checkpoint would be lost: use a longer grace period"
	}
	u.log.Log(ctx, level, words, "step", steps[0], "left", backends.Size(left),
		"rate", expected(left, need), "needs", need.Round(time.Second), "grace", grace.Round(time.Second))
}
