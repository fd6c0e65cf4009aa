package checkpoint

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
)

// expired rejects writes until new credentials are there, as a store does whose token has expired.
type expired struct {
	backends.Backend
	renewed time.Time
}

func (e expired) Create(ctx context.Context, key string, opts backends.CreateOptions) (backends.Writer, error) {
	if time.Now().Before(e.renewed) {
		err := backends.Errorf(backends.Permission, "create", key, "the session token has expired")
		err.Again = true // the file with the token is read again
		return nil, err
	}
	return e.Backend.Create(ctx, key, opts)
}

// A drain gave up after a second of sixty, although the next token was about to be written, and
// the last checkpoint was lost.
func TestDrainSavesWhenExpiredCredentialsAreRenewed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		store := backends.NewStore(expired{b, time.Now().Add(20 * time.Second)}, "mem://test", backends.Options{}) // retries as by default
		u := newUploader(t, dir, b, func(c *Config) { c.Store = store })
		write(t, filepath.Join(dir, "checkpoint-1"), model("1"))
		if _, err := u.Commit(t.Context(), CommitRequest{Path: "checkpoint-1", Step: -1}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		if err := u.Drain(ctx, Exit{Gone: true}); err != nil {
			t.Errorf("drain: got %v after %v, want the checkpoint saved", err, time.Since(start))
		}
		_, files := restoreNewest(t, b)
		equal(t, "restored", files, model("1"))
	})
}
