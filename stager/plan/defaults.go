package plan

import "time"

// Defaults are what a part of the plan is before the file is read over it. So a
// zero that is written in the file is a zero.

// defaulter is a part that stands in a list or behind a pointer. Parts that always
// exist get theirs from the part around them.
type defaulter interface{ setDefaults() }

func (p *StagePlan) setDefaults() {
	p.Spec.Shard.By = ShardAuto
}

func (v *Volume) setDefaults() {
	v.Medium = "disk"
}

func (in *Input) setDefaults() {
	in.Mode = ModePrefetch
	in.Order = OrderSpec{By: ByName, Epochs: 1}
	in.Unpack = UnpackNone
	in.Verify = "auto"
}

func (s *Source) setDefaults() {
	s.Weight = 1
}

func (w *Window) setDefaults() {
	w.Release = ReleaseLease
	w.Layout = LayoutStage
}

func (out *Output) setDefaults() {
	out.Commit = CommitCheckpoint
	out.When = []string{WhenChange, WhenExit}
	out.Settle = Duration(10 * time.Second)
	out.Conflict = ConflictFail
	out.Required = true
	out.Deadline = Duration(10 * time.Minute)
}

func (h *Hold) setDefaults() { *h = DefaultHold }

// boundPrefetches refuses what does not fit into a volume before it is fetched: a pod
// that fills one over its limit is evicted in the middle.
func (s *Spec) boundPrefetches() {
	for i := range s.Inputs {
		in := &s.Inputs[i]
		for _, v := range s.Volumes {
			if v.Name == in.Volume && in.Mode == ModePrefetch && in.MaxBytes == 0 {
				in.MaxBytes = v.Size
			}
		}
	}
}
