package explain

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/stager-dev/stager/stager/plan"
)

// input reports what one pod reads of an input, and what all pods request from its stores.
func (e *explainer) input(ctx context.Context, p *work, i int) error {
	in := p.d.Plan.Spec.Inputs[i]
	where := p.directory("input", in.Name)
	all := Input{
		Name: in.Name, Mode: in.Mode, Path: in.Path, Volume: where.Volume, Medium: where.Medium, Epochs: 1, SizeFrom: Listed,
	}
	if in.Window != nil {
		all.Epochs, all.Window = in.Order.Epochs, int64(in.Window.Size)
	}
	var gets int64
	for _, from := range in.From() {
		s, err := e.source(ctx, p, in, from)
		if err != nil {
			return err
		}
		all.URLs = append(all.URLs, from.Source)
		e.lacks(p, in, s)
		mine := s.share(p.sharing(in))
		all.Objects, all.Bytes, all.Largest = all.Objects+s.objects, all.Bytes+s.bytes, max(all.Largest, s.largest)
		all.PodTakes, all.PodItems, all.OnDisk = all.PodTakes+mine.bytes, all.PodItems+mine.objects, all.OnDisk+mine.disk
		all.AtLeast = all.AtLeast || s.atLeast
		all.Note = joinNotes(all.Note, s.note)
		if s.from != Listed {
			all.SizeFrom = s.from
		}
		gets += mine.gets
		if s.rate > 0 && (p.rate == 0 || s.rate < p.rate) {
			p.rate = s.rate
		}
		e.asks(p, in, from.Source, s, mine)
		if _, said := e.Assume[in.Name]; said {
			break // the size covers all sources
		}
	}
	e.note(p, in, &all)
	if in.Window != nil {
		all.MinReady = minReady(in.Window.MinReady, all)
		all.OnDisk = all.Window
	}
	p.Inputs, p.gets = append(p.Inputs, all), append(p.gets, gets)
	return nil
}

// lacks adds findings for a source whose size is unknown or that has an error.
func (e *explainer) lacks(p *work, in plan.Input, s *size) {
	switch {
	case s.broken != nil:
		f := *s.broken
		f.Object = p.Object
		e.find(f)
	case s.from == Nowhere:
		e.find(Finding{
			Kind: NotKnown, Name: "size", Object: p.Object,
			Text: fmt.Sprintf("input %s: how many bytes it has is not known%s", in.Name, behind(s.note)),
			Add:  fmt.Sprintf("--assume %s=SIZE, such as --assume %s=200GB", in.Name, in.Name),
		})
	}
	if s.atLeast && s.broken == nil && in.Window == nil {
		e.find(Finding{
			Kind: NotKnown, Name: "size", Object: p.Object,
			Text: fmt.Sprintf("input %s: it has more than the %s that were listed", in.Name, countText(s.objects, "object")),
			Add:  "--list-limit 0, which lists all",
		})
	}
	if bound := int64(in.MaxBytes); bound > 0 && s.from != AtMost && s.broken == nil {
		if mine := s.share(p.sharing(in)); mine.bytes > bound {
			takes, allowed := apart(mine.bytes, bound)
			e.find(Finding{
				Kind: NoSpace, Name: "maxBytes", Object: p.Object, Has: bound, Needs: mine.bytes,
				Text: fmt.Sprintf("input %s: a pod takes %s of it, and its volume or maxBytes allow %s: stager-prefetch would refuse it", in.Name, takes, allowed),
				Add:  e.larger(p, "input", in.Name, mine.disk), Line: p.directory("input", in.Name).Line,
			})
		}
	}
}

func behind(note string) string {
	if note == "" {
		return ""
	}
	return ": " + note
}

// note adds what the numbers of an input leave out.
func (e *explainer) note(p *work, in plan.Input, all *Input) {
	if in.Unpack == plan.UnpackAuto {
		all.Note = joinNotes(all.Note, "archives are opened: what comes out of them is not counted")
		all.AtLeast = true
	}
	if p.sharing(in) == 0 {
		all.Note = joinNotes(all.Note, "which part a pod takes is known in the pod only; counted is all")
	}
	if in.Window != nil && in.Window.Size > 0 && all.Largest > int64(in.Window.Size) {
		largest, holds := apart(all.Largest, int64(in.Window.Size))
		e.find(Finding{
			Kind: NoSpace, Name: "window", Object: p.Object, Has: int64(in.Window.Size), Needs: all.Largest, Line: p.directory("input", in.Name).Line,
			Text: fmt.Sprintf("input %s: its largest object has %s, and the window holds %s", in.Name, largest, holds),
			Add:  e.larger(p, "input", in.Name, all.Largest),
		})
	}
}

// share returns the largest part that one pod reads when the given number of pods share a source.
func (s *size) share(sharing int) part {
	n := int64(max(sharing, 1))
	if s.from == AtMost { // an upper bound for each pod
		n = 1
	}
	if s.parts == nil || sharing > plan.Stripes {
		up := func(all int64) int64 { return (all + n - 1) / n }
		return part{up(s.objects), up(s.bytes), up(s.disk), up(s.gets)}
	}
	var most part
	for i := range int(n) {
		var mine part
		for stripe, has := range s.parts {
			if (plan.Shard{Index: i, Count: int(n)}).Owns(stripe) {
				mine.objects, mine.bytes, mine.disk, mine.gets = mine.objects+has.objects, mine.bytes+has.bytes, mine.disk+has.disk, mine.gets+has.gets
			}
		}
		if mine.bytes >= most.bytes {
			most = mine
		}
	}
	return most
}

// minReady returns how many bytes a window needs before the job starts.
func minReady(m plan.MinReady, all Input) int64 {
	bytes := int64(m.Bytes)
	if m.Files > 0 && all.Objects > 0 {
		bytes = max(bytes, int64(m.Files)*((all.Bytes+all.Objects-1)/all.Objects))
	}
	if all.SizeFrom != Nowhere {
		bytes = min(bytes, all.PodTakes)
	}
	return bytes
}

// output reports what one pod saves.
func (e *explainer) output(p *work, out plan.Output) {
	where := p.directory("output", out.Name)
	o := Output{
		Name: out.Name, Path: out.Path, Destination: out.Destination, Volume: where.Volume, Medium: where.Medium,
		Deadline: int64(math.Ceil(float64(out.Deadline) / 1e9)),
	}
	known := false
	if o.Checkpoint, known = e.Checkpoint[out.Name]; !known {
		o.Checkpoint, known = e.Checkpoint[""]
	}
	if !known {
		e.find(Finding{
			Kind: NotKnown, Name: "checkpoint", Object: p.Object,
			Text: fmt.Sprintf("output %s: how large a checkpoint is is not known, and so neither its room nor the time to save it", out.Name),
			Add:  "--checkpoint-size SIZE, such as --checkpoint-size 20GB",
		})
	}
	// The volume has the checkpoints that the trainer retains, a removed one that is still being
	// saved, and the one that is being written.
	o.OnDisk = o.Checkpoint * int64(e.Kept+2)
	p.Outputs = append(p.Outputs, o)
	e.saves(p, out, o, known)
}

// volumes reports what is stored on each volume, and adds findings for volumes that are too small.
func (e *explainer) volumes(p *work) {
	for _, f := range p.d.Dirs {
		if slices.ContainsFunc(p.Volumes, func(v Volume) bool { return v.Name == f.Volume }) {
			continue
		}
		v := Volume{Name: f.Volume, Medium: f.Medium, Own: f.Own, Limit: int64(f.Limit), Known: true}
		for _, in := range p.Inputs {
			if in.Volume != v.Name {
				continue
			}
			v.For = append(v.For, "input "+in.Name)
			v.Needs += in.OnDisk + in.Window/20 // a window's readers write next to it
			v.Known = v.Known && (in.Window > 0 || in.SizeFrom != Nowhere && !in.AtLeast)
		}
		for _, out := range p.Outputs {
			if out.Volume == v.Name {
				v.For = append(v.For, "output "+out.Name)
				v.Needs += out.OnDisk
				v.Known = v.Known && out.Checkpoint > 0
			}
		}
		p.Volumes = append(p.Volumes, v)
		if v.Limit > 0 && v.Needs > v.Limit {
			kind, name, _ := strings.Cut(v.For[len(v.For)-1], " ")
			needs, has := apart(v.Needs, v.Limit)
			e.find(Finding{
				Kind: NoSpace, Name: "volume", Object: p.Object, Has: v.Limit, Needs: v.Needs, Line: p.directory(kind, name).Line,
				Text: fmt.Sprintf("volume %s, of %s, needs %s and has %s", v.Name, strings.Join(v.For, " and "), needs, has),
				Add:  e.larger(p, kind, name, v.Needs),
			})
		}
	}
}

// larger returns what to write so that the volume of an input or output has room for needs bytes.
func (e *explainer) larger(p *work, kind, name string, needs int64) string {
	f := p.directory(kind, name)
	size := quantity(needs)
	switch {
	case f.Own && f.Annotation != "":
		return fmt.Sprintf("%s: … ? size=%s", f.Annotation, size)
	case f.Own:
		return fmt.Sprintf("spec.volumes of the plan: {name: %s, size: %s}, and volume: of the %s %s", strings.TrimPrefix(f.Volume, "stager-"), size, kind, name)
	case f.Medium == "memory":
		return fmt.Sprintf("spec.volumes of the pod: {name: %s, emptyDir: {medium: Memory, sizeLimit: %s}}", f.Volume, size)
	case f.Medium == "disk":
		return fmt.Sprintf("spec.volumes of the pod: {name: %s, emptyDir: {sizeLimit: %s}}", f.Volume, size)
	}
	return fmt.Sprintf("a larger volume %s, of %s", f.Volume, size)
}

// quantity formats a number of bytes for Kubernetes, rounded up to whole MiB or GiB.
func quantity(n int64) string {
	unit := int64(1 << 20)
	if n >= 64<<30 {
		unit = 1 << 30
	}
	return plan.Bytes((n + unit - 1) / unit * unit).String()
}
