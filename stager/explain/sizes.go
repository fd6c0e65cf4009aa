package explain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/check"
	"github.com/stager-dev/stager/stager/download"
	"github.com/stager-dev/stager/stager/jobspec"
	"github.com/stager-dev/stager/stager/plan"
)

// Size is the assumed size of an input. Objects is 0 if it is unknown.
type Size struct{ Bytes, Objects int64 }

// Origins of a size.
const (
	Listed  = "listed"
	Assumed = "assumed"
	AtMost  = "plan" // the plan's upper bound
	Nowhere = "unknown"
)

// block is the block size of every file system that pods use. Files occupy whole blocks.
const block = 4096

// usualPart is the assumed part size of a store that is not opened.
const usualPart = 16 << 20

// size is the size of a source.
type size struct {
	from                          string
	objects, bytes, disk, largest int64
	gets                          int64
	atLeast                       bool
	parts                         *[plan.Stripes]part // by position in the order of names; nil: not listed
	part                          int64               // part size of the store
	rate                          float64             // measured throughput in bytes per second
	note                          string
	broken                        *Finding
}

// part is one stripe of a source.
type part struct{ objects, bytes, disk, gets int64 }

// sizeKey identifies a set of objects.
type sizeKey struct{ url, secret, filter string }

// source determines the size of one source of an input.
func (e *explainer) source(ctx context.Context, p *work, in plan.Input, from plan.Source) (*size, error) {
	if said, ok := e.Assume[in.Name]; ok {
		return assumed(said), nil
	}
	if e.Open == nil {
		return unknown(in, ""), nil
	}
	url, err := expanded(p.d, from.Source, e.Now)
	if err != nil {
		return unknown(in, err.Error()), nil
	}
	key := sizeKey{url, from.Credentials.Secret, fmt.Sprintf("%q %q", in.Include, in.Exclude)}
	if known, ok := e.sizes[key]; ok {
		return known, nil
	}
	s, err := e.list(ctx, in, url, from.Credentials.Secret)
	if err != nil {
		return nil, err
	}
	if url != from.Source {
		s.note = joinNotes(s.note, "listed for the first pod, "+url)
	}
	e.sizes[key] = s
	return s, nil
}

func joinNotes(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

func assumed(said Size) *size {
	s := &size{from: Assumed, objects: said.Objects, bytes: said.Bytes, disk: said.Bytes, part: usualPart}
	if said.Objects > 0 {
		s.largest = (said.Bytes + said.Objects - 1) / said.Objects
		s.disk = said.Objects * ((s.largest + block - 1) / block * block)
		s.gets = said.Objects * download.Reads(s.largest, usualPart)
	} else {
		s.gets = (said.Bytes + usualPart - 1) / usualPart
	}
	return s
}

// unknown returns the size of a source that is not listed: the plan's bound, if it has one.
func unknown(in plan.Input, note string) *size {
	if in.MaxBytes > 0 {
		s := assumed(Size{Bytes: int64(in.MaxBytes)})
		s.from, s.note = AtMost, joinNotes(note, "the most that the plan allows")
		return s
	}
	return &size{from: Nowhere, part: usualPart, note: note}
}

// expanded returns a URL with its placeholders replaced, as in the first pod.
func expanded(d *jobspec.Pod, url string, now time.Time) (string, error) {
	values := map[string]string{
		"STAGER_JOB": d.Job, "STAGER_NAMESPACE": "default", "STAGER_POD": d.Job + "-0", "STAGER_ROLE": d.Role,
	}
	p := &plan.StagePlan{Metadata: d.Plan.Metadata, Spec: plan.Spec{Inputs: []plan.Input{{Source: url, Path: "/x"}}}}
	p, err := p.Expand(p.Vars(plan.Shard{Index: 0, Count: max(d.Sharing, 1)}, now, func(name string) string { return values[name] }))
	if err != nil {
		return "", err
	}
	return p.Spec.Inputs[0].Source, nil
}

// errCut stops a listing at its limit.
var errCut = errors.New("the listing is long enough")

// list lists a source and sums its objects. It returns only the context's error; errors of the
// store are in the size.
func (e *explainer) list(ctx context.Context, in plan.Input, url, secret string) (*size, error) {
	s := &size{from: Listed, part: usualPart}
	e.progress("listing " + url)
	store, err := e.Open(ctx, url, secret)
	if err != nil {
		return e.failed(ctx, s, in, url, err)
	}
	defer store.Close() // only read
	s.part, s.parts = store.Capabilities().PartSize, new([plan.Stripes]part)
	var sample sample
	from, err := s.sum(ctx, store, in, e.ListLimit, func(obj backends.Object) {
		sample.add(obj)
		if s.objects%10_000 == 0 {
			e.progress(fmt.Sprintf("listing %s: %s objects, %s", url, humanize.Comma(s.objects), humanize.IBytes(uint64(s.bytes))))
		}
	})
	switch {
	case errors.Is(err, errCut):
		s.atLeast = true
		s.note = fmt.Sprintf("the listing was cut after %s objects", humanize.Comma(s.objects))
	case err != nil:
		return e.failed(ctx, s, in, url, err)
	}
	if e.Measure > 0 && s.bytes > 0 {
		e.progress("reading from " + url)
		s.rate, _, err = check.ReadSpeed(ctx, from, sample.objects(), e.Measure)
		if err != nil {
			return e.failed(ctx, s, in, url, err)
		}
	}
	return s, nil
}

// sum adds up the objects of a store that an input selects. It returns the store from which they
// are read.
func (s *size) sum(ctx context.Context, store *backends.Store, in plan.Input, limit int, each func(backends.Object)) (*backends.Store, error) {
	if parent, obj, err := store.Self(ctx); err == nil { // the URL is that of one object
		s.add(obj, 0)
		each(obj)
		return parent, nil
	} else if backends.KindOf(err) != backends.NotExist {
		return nil, err
	}
	l := plan.Listing{Filter: plan.Filter{Include: in.Include, Exclude: in.Exclude}, Unpack: in.Unpack == plan.UnpackAuto}
	position := 0
	for obj, err := range l.Objects(ctx, store) {
		if err != nil {
			return nil, err
		}
		if limit > 0 && position >= limit {
			return store, errCut
		}
		s.add(obj, position)
		each(obj)
		position++
	}
	return store, nil
}

// add counts an object at a position in the order of names.
func (s *size) add(obj backends.Object, position int) {
	disk, gets := (obj.Size+block-1)/block*block, download.Reads(obj.Size, s.part)
	s.objects++
	s.bytes += obj.Size
	s.disk += disk
	s.gets += gets
	s.largest = max(s.largest, obj.Size)
	stripe := &s.parts[position%plan.Stripes]
	stripe.objects++
	stripe.bytes += obj.Size
	stripe.disk += disk
	stripe.gets += gets
}

// failed returns the size of a source whose listing failed.
func (e *explainer) failed(ctx context.Context, s *size, in plan.Input, url string, err error) (*size, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	kind := BadLimit
	switch backends.KindOf(err) {
	case backends.NotExist:
		if in.Optional {
			return &size{from: Listed, part: usualPart, note: "the source has no object, and is optional"}, nil
		}
		if strings.HasPrefix(url, "file:") { // a path in the pod
			return unknown(in, "a directory of the pod, which is not on this machine"), nil
		}
		kind = MissingSource
	case backends.Permission:
		kind = Forbidden
	case backends.Unavailable, backends.Throttled, backends.Unknown, backends.Canceled:
		kind = Unreachable
	}
	s.from, s.atLeast = Nowhere, true
	s.broken = &Finding{Kind: kind, Name: "source", Text: fmt.Sprintf("input %s: %v", in.Name, err)}
	return s, nil
}

// sample retains the objects of a listing that are read to measure a store: the first ones and the
// largest.
type sample struct {
	first   []backends.Object
	largest backends.Object
}

func (s *sample) add(obj backends.Object) {
	if obj.Size > 0 && len(s.first) < 256 {
		s.first = append(s.first, obj)
	}
	if obj.Size > s.largest.Size {
		s.largest = obj
	}
}

func (s *sample) objects() []backends.Object {
	if len(s.first) < 256 || s.largest.Size <= s.first[0].Size {
		return s.first
	}
	return append(s.first, s.largest)
}
