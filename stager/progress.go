package stager

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/stager-dev/stager/backends"
)

// progressEvery is the interval between log lines about one prefetch.
const progressEvery = 10 * time.Second

// logProgress logs the progress of an input's prefetch every progressEvery until ctx ends. Without
// it, a pod whose init container fetches for an hour would show nothing.
func (in *input) logProgress(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	var before int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		in.mu.Lock()
		p := in.progress
		in.mu.Unlock()
		if p == nil {
			log.Info("still waiting for the store", "input", in.spec.Name)
			continue
		}
		log.Info(string(p.Phase), "input", in.spec.Name, "files", fmt.Sprintf("%d/%d", p.Files, p.FilesTotal),
			"bytes", backends.Size(p.Bytes), "of", backends.Size(p.BytesTotal), "rate", backends.Rate(float64(p.Bytes-before)/progressEvery.Seconds()))
		before = p.Bytes
	}
}
