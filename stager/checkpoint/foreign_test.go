package checkpoint

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
)

// partsStore is a store with incomplete multipart uploads, as S3 lists them.
type partsStore struct {
	*mem.Backend
	left   []backends.Orphan
	begun  int  // multipart uploads
	broken bool // parts fail
}

func (p *partsStore) Sweep(_ context.Context, _ string, over func(backends.Orphan) bool) error {
	p.left = slices.DeleteFunc(p.left, over)
	return nil
}

func (p *partsStore) keys() (keys []string) {
	for _, left := range p.left {
		keys = append(keys, left.Key)
	}
	return keys
}

const ownData = "step-00000001/data/0123456789abcdef/model"

// foreignUploads are old multipart uploads without any sign that stager started them.
var foreignUploads = []string{
	"datasets/theirs.tar", "files/video.mp4", "step-00000001/export.bin",
	"step-00000001/data/not-an-upload/model", "step-00000001/data/0123456789abcdef", "step-x/data/0123456789abcdef/model",
}

func newPartsStore() *partsStore {
	p := &partsStore{Backend: mem.New()}
	for _, key := range append([]string{ownData}, foreignUploads...) {
		p.left = append(p.left, backends.Orphan{Key: key, Size: 7, Touched: time.Now().Add(-Abandoned - time.Hour)})
	}
	return p
}

// Regression: the sidecar aborted multipart uploads of other tools below its prefix when they
// were older than a day.
func TestSweepKeepsForeignUploads(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := newPartsStore(), t.TempDir()
		u := newUploader(t, dir, b, func(c *Config) { c.Keep.Last = 1 })
		for _, step := range []string{"7", "8"} {
			write(t, filepath.Join(dir, "step-"+step), model(step))
			settled(t, u)
		}
		if got := b.keys(); !slices.Equal(got, foreignUploads) {
			t.Errorf("after the sweep there are %q, want %q", got, foreignUploads)
		}
	})
}

func TestPruneForeignUploads(t *testing.T) {
	for _, tt := range []struct {
		foreign    Foreign
		abandoned  time.Duration
		dry        bool
		list, stay bool
	}{
		{"", Abandoned, false, false, true},
		{ForeignKeep, 0, false, false, true},
		{ForeignList, 0, false, true, true},
		{ForeignRemove, 2 * Abandoned, false, false, true},
		{ForeignRemove, Abandoned, true, true, true},
		{ForeignRemove, Abandoned, false, true, false},
	} {
		b := newPartsStore()
		gone, err := Prune(t.Context(), PruneConfig{
			Store: newStore(b), Keep: Keep{Last: 1}, Abandoned: tt.abandoned, DryRun: tt.dry, Foreign: tt.foreign,
		})
		if err != nil {
			t.Errorf("%+v: %v", tt, err)
		}
		var listed []string
		for _, p := range gone {
			if p.Foreign {
				listed = append(listed, p.Key)
			}
			if want := tt.foreign == ForeignList; p.Foreign && p.Kept != want {
				t.Errorf("%+v: %q is kept: got %t, want %t", tt, p.Key, p.Kept, want)
			}
		}
		if want := foreignUploads; tt.list && !slices.Equal(listed, want) || !tt.list && listed != nil {
			t.Errorf("%+v: listed %q, want a list: %t", tt, listed, tt.list)
		}
		left := slices.DeleteFunc(b.keys(), func(key string) bool { return key == ownData })
		if tt.stay != slices.Equal(left, foreignUploads) {
			t.Errorf("%+v: %q are left, want all: %t", tt, left, tt.stay)
		}
	}
}

// A name that resembles stager's temporary names belongs to another program.
func TestSweepKeepsNamesLikeItsOwn(t *testing.T) {
	dest := t.TempDir()
	theirs := []string{".stager-tmp", "stager-tmp-x", ".stager-temp-1", "x.stager-tmp-2", "step-00000001/.stager-notes", "files/.stager-tm"}
	killed(t, dest, 2*Abandoned, theirs...)
	own := "files/.stager-tmp-0123456789ABCDEF"
	killed(t, dest, 2*Abandoned, own)
	if _, err := Prune(t.Context(), PruneConfig{Store: stored(t, dest), Keep: Keep{Last: 1}, Foreign: ForeignRemove}); err != nil {
		t.Fatal(err)
	}
	for _, name := range theirs {
		if !exists(dest, name) {
			t.Errorf("%s was removed, want it kept", name)
		}
	}
	if exists(dest, own) {
		t.Errorf("%s is left, want it removed", own)
	}
}
