package layout

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/internal/records"
	"github.com/stager-dev/stager/stager/plan"
)

const (
	format    = 1
	recordMax = 1 << 20
	suffix    = ".json"
)

// record is the record of a layout at the destination.
type record struct {
	Format int    `json:"format"`
	ID     string `json:"id"`  // random, different for each layout
	Run    int    `json:"run"` // how often all workers started it
	Layout
	Before []string `json:"before,omitempty"` // Layout.Index of the layouts that it replaced, newest first
}

// maxBefore is how many indexes a record remembers.
const maxBefore = 16

// indexes returns the indexes of the record's layout and of the layouts before it.
func (r *record) indexes() []string {
	all := r.Before
	if r.Index != "" && !slices.Contains(all, r.Index) {
		all = append([]string{r.Index}, all...)
	}
	return all[:min(len(all), maxBefore)]
}

// IndexSum returns the value of Layout.Index for an index.
func IndexSum(index []byte) string {
	sum := sha256.Sum256(index)
	return hex.EncodeToString(sum[:])
}

// base returns the prefix of the keys of a layout's record and marks.
func base(l Layout) string {
	sum := sha256.Sum256([]byte(l.Name))
	return plan.CopyRecords + "layout/" + l.Kind + "-" + hex.EncodeToString(sum[:8])
}

func (r *record) mark(index int) string {
	return fmt.Sprintf("%s/%s-%d-%d", base(r.Layout), r.ID, r.Run, index)
}

func newRecord(l Layout, run int) record {
	return record{Format: format, ID: rand.Text()[:16], Run: run, Layout: l}
}

// read returns the record of a layout and its version.
func read(ctx context.Context, dst *backends.Store, key string) (r record, v backends.Version, err error) {
	text, v, err := records.Read(ctx, dst, key, recordMax)
	if err != nil {
		return r, "", err
	}
	refuse := func(format string, args ...any) error {
		return &backends.Error{Op: "read", Store: dst.Name(), Key: key, Kind: backends.Invalid, Err: fmt.Errorf(format, args...)}
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, "", refuse("cannot read the record of the layout (%w); if no worker is running, run this command with --reset-layout", err)
	}
	if r.Format > format {
		return r, "", refuse("the record of the layout has format %d, but this version of stager supports format %d; use the version that wrote it", r.Format, format)
	}
	if r.ID == "" || r.Workers < 1 || r.Workers > plan.Stripes {
		return r, "", refuse("the record of the layout is incomplete; if no worker is running, run this command with --reset-layout")
	}
	return r, v, nil
}

// Tally collects the record and marks of one layout from a listing of the destination.
type Tally struct {
	base    string
	version backends.Version
	marks   []string
}

// Add adds an object of the listing. It ignores objects that do not belong to the layout.
func (t *Tally) Add(obj backends.Object) {
	rest, ok := strings.CutPrefix(obj.Key, t.base)
	if !ok {
		return
	}
	if rest == suffix {
		t.version = obj.Version
	} else if mark, ok := strings.CutPrefix(rest, "/"); ok {
		t.marks = append(t.marks, mark)
	}
}

// list returns a tally from a separate listing.
func list(ctx context.Context, dst *backends.Store, l Layout) (*Tally, error) {
	t := &Tally{base: base(l)}
	for obj, err := range dst.List(ctx, t.base) {
		if backends.KindOf(err) == backends.NotExist {
			break // the directory does not exist yet
		}
		if err != nil {
			return nil, err
		}
		t.Add(obj)
	}
	return t, nil
}

// missing returns the workers without a mark for a record; run 0 means any run.
func (t *Tally) missing(r record, run int) (missing []int) {
	there := make(map[int]bool)
	for _, mark := range t.marks {
		parts := strings.Split(mark, "-")
		if len(parts) != 3 || parts[0] != r.ID {
			continue
		}
		in, errRun := strconv.Atoi(parts[1])
		index, errIndex := strconv.Atoi(parts[2])
		if errRun == nil && errIndex == nil && (run == 0 || in == run) {
			there[index] = true
		}
	}
	for i := range r.Workers {
		if !there[i] {
			missing = append(missing, i)
		}
	}
	return missing
}

// remove deletes the marks of all records except keep.
func (t *Tally) remove(ctx context.Context, dst *backends.Store, keep string) error {
	var errs []error
	for _, mark := range t.marks {
		if keep == "" || !strings.HasPrefix(mark, keep+"-") {
			errs = append(errs, dst.Delete(ctx, t.base+"/"+mark))
		}
	}
	return errors.Join(errs...)
}

// unfinished lists workers for a message.
func unfinished(missing []int, count int) string {
	words := make([]string, 0, 6)
	for i, n := range missing {
		if i == 5 {
			words = append(words, fmt.Sprintf("and %d more", len(missing)-i))
			break
		}
		words = append(words, strconv.Itoa(n))
	}
	have := "have"
	if len(missing) == 1 {
		have = "has"
	}
	return fmt.Sprintf("%d of its %d workers %s not finished (%s)", len(missing), count, have, strings.Join(words, ", "))
}
