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
	Step  int64   `json:"step"`
	Bytes int64   `json:"bytes"`
	Rate  float64 `json:"rate"` // bytes per second
}

const paceName = private + "/pace"

// needs returns how long a checkpoint of this size takes at this rate; 0: unknown.
func (p pace) needs() time.Duration {
	if p.Rate <= 0 {
		return 0
	}
	return time.Duration(float64(p.Bytes) / p.Rate * float64(time.Second))
}

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
	need := p.needs()
	u.cfg.Metrics.forecast.WithLabelValues(u.cfg.Output).Set(need.Seconds())
	if u.cfg.Grace > 0 && need > u.cfg.Grace {
		u.log.Warn("a checkpoint that completes when draining starts would be lost: use a longer grace period, or smaller checkpoints",
			"like_step", p.Step, "bytes", backends.Size(p.Bytes), "rate", backends.Rate(p.Rate),
			"needs", need.Round(time.Second), "grace", u.cfg.Grace.Round(time.Second))
	}
}

// forecast logs whether the newest checkpoint will be saved before the deadline of ctx.
func (u *Uploader) forecast(ctx context.Context) {
	deadline, limited := ctx.Deadline()
	u.mu.Lock()
	defer u.mu.Unlock()
	rate := u.lastRate
	if up := u.uploading; up != nil && up.done.Load() > 0 {
		rate = up.rate()
	}
	steps := u.pendingLocked()
	if len(steps) == 0 || !limited || rate <= 0 {
		return
	}
	left := totalSize(u.snaps[steps[0]].Files)
	if up := u.uploading; up != nil && up.snap.Step == steps[0] {
		left -= up.done.Load()
	}
	need, grace := time.Duration(float64(left)/rate*float64(time.Second)), time.Until(deadline)
	level, words := slog.LevelInfo, "the newest checkpoint should be safe in time"
	if need > grace {
		level, words = slog.LevelError, "the newest checkpoint would be lost: use a longer grace period"
	}
	u.log.Log(ctx, level, words, "step", steps[0], "left", backends.Size(left),
		"rate", backends.Rate(rate), "needs", need.Round(time.Second), "grace", grace.Round(time.Second))
}
