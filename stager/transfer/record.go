package transfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/plan"
)

// A note is the record's entry for one copied object: a digest of its key, size and both versions.
// This suffices to detect that nothing changed.
type note [16]byte

func noteOf(from, to backends.Object) note {
	h := sha256.New()
	for _, part := range []string{from.Key, strconv.FormatInt(from.Size, 10), string(from.Version), string(to.Version)} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return note(h.Sum(nil))
}

const (
	noteEvery  = 30 * time.Second // limits how much work a kill makes unsure
	noteWithin = 30 * time.Second // time-out of the last write
	recordMax  = 256 << 20
)

// record remembers at the destination what was copied from this source. Each partition writes its
// own record.
type record struct {
	dst *backends.Store
	key string

	mu      sync.Mutex // guards all below
	old     []note     // ascending
	added   []note
	unsaved int
	saved   time.Time

	saving sync.Mutex // held while writing
}

// openRecord reads what earlier runs recorded: the record of this partition, or the records of all
// partitions if it has none or covers everything.
func openRecord(ctx context.Context, cfg *Config) (*record, error) {
	source := sha256.Sum256([]byte(cfg.Src.Name()))
	base := plan.CopyRecords + hex.EncodeToString(source[:8]) + "-"
	shard := cfg.Listing.Shard
	r := &record{dst: cfg.Dst, key: base + strings.ReplaceAll(shard.String(), "/", "-of-"), saved: time.Now()}
	err := r.read(ctx, r.key)
	if backends.KindOf(err) == backends.NotExist || err == nil && shard.Count <= 1 {
		for obj, err := range listing(ctx, cfg.Dst, base) {
			if err != nil {
				return nil, err
			}
			if obj.Key == r.key {
				continue
			}
			if err := r.read(ctx, obj.Key); err != nil && backends.KindOf(err) != backends.NotExist {
				return nil, err
			}
		}
		err = nil
	}
	slices.SortFunc(r.old, compareNotes)
	return r, err
}

func (r *record) read(ctx context.Context, key string) error {
	text, _, err := r.dst.ReadAll(ctx, key, recordMax)
	if err != nil {
		return err
	}
	for ; len(text) >= len(note{}); text = text[len(note{}):] {
		r.old = append(r.old, note(text[:len(note{})]))
	}
	return nil
}

func compareNotes(a, b note) int { return bytes.Compare(a[:], b[:]) }

// has reports whether to is a recorded copy of from.
func (r *record) has(from, to backends.Object) bool {
	if from.Version == "" || to.Version == "" {
		return false
	}
	_, found := slices.BinarySearchFunc(r.old, noteOf(from, to), compareNotes)
	return found
}

// add records a copy, and writes the record periodically.
func (r *record) add(ctx context.Context, from, to backends.Object) error {
	r.mu.Lock()
	r.added = append(r.added, noteOf(from, to))
	r.unsaved++
	due := time.Since(r.saved) >= noteEvery
	r.mu.Unlock()
	if !due || !r.saving.TryLock() {
		return nil
	}
	defer r.saving.Unlock()
	return r.write(ctx)
}

// close writes the remaining notes, also after the context ended.
func (r *record) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteWithin)
	defer cancel()
	r.saving.Lock()
	defer r.saving.Unlock()
	return r.write(ctx)
}

// write writes the record. The caller holds saving.
func (r *record) write(ctx context.Context) error {
	r.mu.Lock()
	n := r.unsaved
	text := make([]byte, 0, (len(r.old)+len(r.added))*len(note{}))
	for _, notes := range [][]note{r.old, r.added} {
		for _, one := range notes {
			text = append(text, one[:]...)
		}
	}
	r.saved = time.Now()
	r.mu.Unlock()
	if n == 0 {
		return nil
	}
	if _, err := r.dst.PutBytes(ctx, r.key, text, backends.CreateOptions{}); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unsaved -= n
	return nil
}
