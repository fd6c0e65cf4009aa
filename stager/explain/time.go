package explain

import (
	"fmt"
	"math"
	"time"

	"github.com/stager-dev/stager/stager/jobspec"
)

// speed returns the throughput of one pod, in bytes per second, while all concurrent pods transfer
// data, and the name of the bottleneck. The rate is 0 if it is unknown.
func (e *explainer) speed(p *work) (rate float64, by string) {
	rate, by = e.NodeBandwidth/float64(e.PodsPerNode), "node"
	if rate == 0 {
		rate = p.rate
	}
	if limit := float64(p.d.Plan.Spec.Limits.Bandwidth); limit > 0 && (rate == 0 || limit < rate) {
		rate, by = limit, "plan"
	}
	if share := e.StoreBandwidth / float64(max(p.AtOnce, 1)); share > 0 && (rate == 0 || share < rate) {
		rate, by = share, "store"
	}
	return rate, by
}

// staging computes how long a pod waits for its data.
func (e *explainer) staging(p *work) {
	var bytes, gets int64
	s := &Staging{}
	known := true
	for i, in := range p.Inputs {
		switch {
		case p.Gate == jobspec.GateNone:
		case in.Mode == "prefetch":
			bytes, gets = bytes+in.PodTakes, gets+p.gets[i]
			known = known && in.SizeFrom != Nowhere
			s.AtLeast = s.AtLeast || in.AtLeast
		case p.Gate == jobspec.GateStartup:
			bytes += in.MinReady
			known = known && in.SizeFrom != Nowhere
		}
	}
	rate, by := e.speed(p)
	switch {
	case bytes == 0 && known:
	case rate == 0 || !known:
		if known {
			e.find(Finding{
				Kind: NotKnown, Name: "bandwidth", Object: p.Object, Text: "how long staging takes is not known without a bandwidth",
				Add: "--bandwidth RATE, such as --bandwidth 10Gbit/s, or --measure",
			})
		}
		return
	default:
		s.Seconds, s.LimitedBy = float64(bytes)/rate, by
	}
	s.Bytes = bytes
	if e.StoreRequests > 0 {
		if slow := float64(gets) * float64(max(p.AtOnce, 1)) / e.StoreRequests; slow > s.Seconds {
			s.Seconds, s.LimitedBy = slow, "requests"
		}
	}
	p.Staging = s
	if e.Within > 0 && s.Seconds > e.Within.Seconds() {
		e.find(Finding{
			Kind: BadLimit, Name: "staging", Object: p.Object, Has: int64(e.Within.Seconds()), Needs: ceil(s.Seconds),
			Text: fmt.Sprintf("staging takes %s, and the job is to begin within %s", secondsText(s.Seconds), e.Within),
			Add:  "a window (mode=window&size=…), in which the job begins with the first files, more bandwidth, or fewer pods at once",
		})
	}
}

func ceil(seconds float64) int64 { return int64(math.Ceil(seconds)) }

// marginOfGrace is the time for the shutdown itself after the last upload, in seconds. inject adds
// the same margin to the deadline.
const marginOfGrace = 30

// uploads checks that deadlines and the grace period suffice for the largest checkpoints.
func (e *explainer) uploads(p *work) {
	rate, _ := e.speed(p)
	var together float64
	for i := range p.Outputs {
		out := &p.Outputs[i]
		if out.Checkpoint == 0 {
			continue
		}
		if rate == 0 {
			e.find(Finding{
				Kind: NotKnown, Name: "bandwidth", Object: p.Object, Text: "how long saving a checkpoint takes is not known without a bandwidth",
				Add: "--bandwidth RATE, such as --bandwidth 10Gbit/s",
			})
			return
		}
		seconds := float64(out.Checkpoint) / rate
		out.Upload = ceil(seconds)
		together += seconds
		if out.Upload > out.Deadline {
			f := p.directory("output", out.Name)
			deadline := (time.Duration(out.Upload) * time.Second).Truncate(time.Minute) + time.Minute
			e.find(Finding{
				Kind: BadLimit, Name: "deadline", Object: p.Object, Has: out.Deadline, Needs: out.Upload, Line: f.Line,
				Text: fmt.Sprintf("output %s: saving a checkpoint of %s takes %s, and its deadline is %s: the last one would be lost", out.Name, bytesText(out.Checkpoint), secondsText(float64(out.Upload)), secondsText(float64(out.Deadline))),
				Add:  deadlineLine(f, out.Name, deadline),
			})
		}
	}
	if needs := ceil(together) + marginOfGrace; together > 0 && needs > p.Grace {
		e.find(Finding{
			Kind: BadLimit, Name: "grace period", Object: p.Object, Has: p.Grace, Needs: needs,
			Text: fmt.Sprintf("saving the checkpoints of all outputs takes %s, and 30 s to end, and terminationGracePeriodSeconds is %d", secondsText(together), p.Grace),
			Add:  fmt.Sprintf("spec of the pod: terminationGracePeriodSeconds: %d", needs),
			Line: p.Line,
		})
	}
}

func deadlineLine(f jobspec.Dir, output string, deadline time.Duration) string {
	text := fmt.Sprintf("%dm", int64(deadline/time.Minute))
	if f.Annotation != "" {
		return fmt.Sprintf("%s: … ? deadline=%s", f.Annotation, text)
	}
	return fmt.Sprintf("deadline: %s at the output %s of the plan", text, output)
}
