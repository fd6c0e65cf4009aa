package pack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/layout"
	"github.com/stager-dev/stager/stager/plan"
)

// Config configures a packing.
type Config struct {
	Src     *backends.Store
	Listing plan.Listing // of the files
	Size    int64        // maximum size of a shard in bytes
	Prefix  string       // of the names of shards, such as "train-"; "": "shard-"
	Shuffle *uint64      // seed for the order of samples; nil: order of the listing
}

// IndexKey is the key of the index of all shards; a plan can use it as an input's index.
const IndexKey = "index.jsonl"

// Packed is a directory of files presented as shards.
type Packed struct {
	*backends.Store // of the shards; its backend is the view
	src             *backends.Store
	prefix          string
	shards          []*shard // in the order of their keys
	listed          layout.Digest
	options         map[string]string
}

// Open lists the files and assigns them to shards. It uses some hundred bytes of memory per file.
// The caller closes the store of the files.
func Open(ctx context.Context, cfg Config) (*Packed, error) {
	if cfg.Prefix == "" {
		cfg.Prefix = "shard-"
	}
	p := &Packed{src: cfg.Src, prefix: cfg.Prefix, options: map[string]string{
		"--include": layout.Quote(cfg.Listing.Filter.Include), "--exclude": layout.Quote(cfg.Listing.Filter.Exclude),
		"--shard-size": strconv.FormatInt(cfg.Size, 10),
	}}
	if cfg.Shuffle != nil {
		p.options["--shuffle"] = strconv.FormatUint(*cfg.Shuffle, 10)
	}
	fail := func(kind backends.Kind, err error) error {
		return &backends.Error{Op: "pack", Store: cfg.Src.Name(), Kind: kind, Err: err}
	}
	if cfg.Size < trailer+block {
		return nil, fail(backends.Invalid, fmt.Errorf("shards of %d bytes are too small; use 256Mi", cfg.Size))
	}
	files := func(yield func(backends.Object, error) bool) {
		for obj, err := range cfg.Listing.Objects(ctx, cfg.Src) {
			if err == nil {
				p.listed.Add(obj)
			}
			if !yield(obj, err) {
				return
			}
		}
	}
	all := samples(files)
	if cfg.Shuffle != nil {
		all = shuffled(all, *cfg.Shuffle)
	}
	var err error
	if p.shards, err = shards(all, cfg.Prefix, cfg.Size); err != nil {
		var e *backends.Error
		if errors.As(err, &e) {
			return nil, err
		}
		return nil, fail(backends.Invalid, err)
	}
	// The store of the files already retries and detects stalls.
	p.Store = backends.NewStore(view{p}, cfg.Src.Name(), backends.Options{
		Connections: cfg.Src.Workers(), RetryFor: time.Nanosecond, StallAfter: 24 * time.Hour,
	})
	return p, nil
}

// Files returns the number of files.
func (p *Packed) Files() int { return p.listed.Objects() }

// Shards returns the number of shards.
func (p *Packed) Shards() int { return len(p.shards) }

// Samples returns the number of samples in all shards.
func (p *Packed) Samples() int {
	n := 0
	for _, sh := range p.shards {
		n += sh.samples
	}
	return n
}

// Stale reports whether a key is that of a shard of another packing, which had more shards.
func (p *Packed) Stale(key string) bool {
	var i int
	if n, err := fmt.Sscanf(strings.TrimPrefix(key, p.prefix), "%06d.tar", &i); n != 1 || err != nil {
		return false
	}
	return key == keyOf(p.prefix, i) && i >= len(p.shards)
}

// indexLine is a line of the index, as package plan reads it.
type indexLine struct {
	Key     string         `json:"key"`
	Size    int64          `json:"size"`
	Samples int            `json:"samples"`
	Classes map[string]int `json:"classes,omitempty"`
}

// Index returns the index of all shards, in JSON lines. Classes are the topmost directories; a
// shard with a sample outside any directory has no classes.
func (p *Packed) Index() ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	for _, sh := range p.shards {
		line := indexLine{Key: sh.key, Size: sh.object().Size, Samples: sh.samples}
		if !sh.unnamed && sh.samples > 0 {
			line.Classes = sh.classes
		}
		if err := enc.Encode(line); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// find returns the shard with a key.
func (p *Packed) find(key string) (*shard, error) {
	i, found := slices.BinarySearchFunc(p.shards, key, func(sh *shard, key string) int { return strings.Compare(sh.key, key) })
	if !found {
		return nil, &backends.Error{Kind: backends.NotExist, Err: errors.New("there is no such shard")}
	}
	return p.shards[i], nil
}

// view is the backend of the shards.
type view struct{ *Packed }

var errReadOnly = &backends.Error{Kind: backends.Permission, Err: errors.New("packed shards are read-only")}

// Capabilities returns the capabilities of a store of shards.
func (v view) Capabilities() backends.Capabilities {
	of := v.src.Capabilities()
	return backends.Capabilities{PinnedReads: of.PinnedReads, Parallelism: of.Parallelism, PartSize: of.PartSize}
}

// List yields the shards.
func (v view) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	return func(yield func(backends.Object, error) bool) {
		for _, sh := range v.shards {
			if ctx.Err() != nil {
				yield(backends.Object{}, ctx.Err())
				return
			}
			if strings.HasPrefix(sh.key, prefix) && !yield(sh.object(), nil) {
				return
			}
		}
	}
}

// Stat returns a shard as an object.
func (v view) Stat(_ context.Context, key string) (backends.Object, error) {
	sh, err := v.find(key)
	if err != nil {
		return backends.Object{}, err
	}
	return sh.object(), nil
}

// OpenRange reads the files while the range is read.
func (v view) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	sh, err := v.find(obj.Key)
	if err != nil {
		return nil, err
	}
	is := sh.object()
	if obj.Version != "" && obj.Version != is.Version {
		return nil, &backends.Error{Kind: backends.Changed, Err: errors.New("the files of this shard have changed")}
	}
	if n < 0 {
		n = max(is.Size-off, 0)
	}
	if off < 0 || off > is.Size || n > is.Size-off {
		return nil, &backends.Error{Kind: backends.Invalid, Err: fmt.Errorf("range of %d bytes from %d is outside an object of %d bytes", n, off, is.Size)}
	}
	return read(ctx, v.src, sh, off, off+n), nil
}

func (view) Create(context.Context, string, backends.CreateOptions) (backends.Writer, error) {
	return nil, errReadOnly
}

func (view) Delete(context.Context, string) error { return errReadOnly }

func (view) Close() error { return nil }
