package transfer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/stager-dev/stager/backends"
)

// Verify lists both sides and returns an error if the destination is not complete. The error has
// kind Corrupt if an object differs, else kind Changed if one is missing, which another copy
// repairs. found is called with each such key and the reason, one call at a time. Verify writes
// nothing. If the sizes agree and neither the record of a copy nor checksums decide, it reads both
// sides. If several workers share the work and one has not finished, the error has kind Changed,
// too.
//
// In the Summary, Verified counts by what was compared: "record" (a copy verified the object and
// neither side has changed since), a checksum, or "bytes".
func Verify(ctx context.Context, cfg Config, found func(key, what string)) (Summary, error) {
	start := time.Now()
	cfg.Force = false
	r, err := newRun(ctx, cfg)
	r.verifying = true
	if err != nil {
		return r.summary, err
	}
	var mu sync.Mutex // guards wrong and missing; held while found is called
	wrong, missing := 0, 0
	err = r.each(ctx, func(ctx context.Context, p pair) error {
		how, what := "record", ""
		switch p.state {
		case there:
			if !r.record.has(p.src, p.dst) {
				how = string(p.src.Sum.Algorithm)
			}
		case absent:
			what = "missing"
		case differs:
			what = fmt.Sprintf("differs: %d bytes at the source, %d at the destination", p.src.Size, p.dst.Size)
			if p.src.Size == p.dst.Size {
				what = "differs: its checksum"
			}
		case unsure:
			comparable, equal, err := r.sums(ctx, p.src, p.dst)
			how, what = "checksum", "differs: its checksum"
			if err == nil && !comparable {
				how, what = "bytes", "differs: its bytes"
				equal, err = r.sameBytes(ctx, p.src, p.dst)
			}
			if err != nil {
				return r.explain(err)
			}
			if equal {
				what = ""
			}
		}
		if what == "" {
			r.moved(p.src.Size)
			r.count(p.src, true, how)
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if p.state == absent {
			missing++
		} else {
			wrong++
		}
		found(p.src.Key, what)
		return nil
	})
	r.summary.Seconds = time.Since(start).Seconds()
	if err == nil && wrong+missing == 0 {
		err = r.verifyShared(ctx)
	}
	if err != nil || wrong+missing == 0 {
		return r.summary, err
	}
	kind := backends.Changed
	advice := "run the copy again"
	if wrong > 0 {
		kind = backends.Corrupt
		advice += " with --overwrite"
	}
	return r.summary, &backends.Error{Op: "verify", Store: r.summary.Destination, Kind: kind, Err: fmt.Errorf(
		"the copy is incomplete: %s %s missing and %d %s; %s", english.Plural(missing, "object", ""), english.PluralWord(missing, "is", "are"), wrong, english.PluralWord(wrong, "differs", "differ"), advice)}
}
