package plan

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"
)

// checker reports values of a plan that contradict each other or cannot work. The decoder has
// already reported values with an invalid notation.
type checker struct {
	*report
	checkURL         func(string) error  // of sources; may be nil
	checkDestination func(string) error  // may be nil
	secretKeys       map[string][]string // of each Secret so far
}

func (c *checker) plan(p *StagePlan) {
	if p.APIVersion != APIVersion {
		c.add("apiVersion", "unsupported version %q; this stager reads %s", p.APIVersion, APIVersion)
	}
	if p.Kind != Kind {
		c.add("kind", "got %q, want %s", p.Kind, Kind)
	}
	c.name("metadata.name", p.Metadata.Name)
	s := &p.Spec
	c.shard(s.Shard)
	c.volumes(s)
	c.inputs(s.Inputs)
	c.outputs(s.Outputs)
	c.paths(s)
	c.notNegative("spec.limits.connections", s.Limits.Connections)
	if s.Limits.Uploads != "" {
		c.oneOf("spec.limits.uploads", s.Limits.Uploads, WindowFirst, BalancedShare, DeadlineShare)
	}
	if len(s.Inputs) == 0 && len(s.Outputs) == 0 && !c.reported["spec.inputs"] && !c.reported["spec.outputs"] {
		c.add("spec", "the plan is empty: add inputs or outputs")
	}
}

func (c *checker) shard(s ShardSpec) {
	const at = "spec.shard."
	c.oneOf(at+"by", s.By, ShardAuto, ShardNone, ShardExplicit)
	for _, part := range []struct{ key, value string }{{"index", s.Index}, {"count", s.Count}} {
		_, err := strconv.Atoi(part.value)
		variable := variableName.MatchString(part.value)
		switch {
		case s.By != ShardExplicit && part.value != "":
			c.add(at+part.key, "it requires by: %s", ShardExplicit)
		case s.By == ShardExplicit && err != nil && !variable:
			c.add(at+part.key, "%q is not a number or an environment variable such as $NODE_RANK", part.value)
		}
	}
	index, errIndex := strconv.Atoi(s.Index)
	count, errCount := strconv.Atoi(s.Count)
	if s.By == ShardExplicit && errIndex == nil && errCount == nil {
		if err := (Shard{index, count}).check(); err != nil {
			c.add(at+"index", "%v", err)
		}
	}
}

func (c *checker) volumes(s *Spec) {
	names := make([]string, len(s.Volumes))
	for i, v := range s.Volumes {
		at := place("volumes", i)
		names[i] = v.Name
		c.unique(at+".name", names[:i], v.Name)
		c.medium(at, v)
		left := v.Size
		for j, in := range s.Inputs {
			if in.Volume != v.Name || in.Window == nil || v.Size == 0 {
				continue
			}
			if in.Window.Size > left {
				c.add(place("inputs", j)+".window.size", "%s do not fit: volume %s has %s, of which %s are free; use a smaller window or a larger volume",
					in.Window.Size, v.Name, v.Size, left)
				continue
			}
			left -= in.Window.Size
		}
	}
	known := func(at, volume string) {
		if volume != "" && !slices.Contains(names, volume) {
			c.add(at+".volume", "unknown volume %q; spec.volumes has %s", volume, listed(names))
		}
	}
	for i, in := range s.Inputs {
		known(place("inputs", i), in.Volume)
	}
	for i, out := range s.Outputs {
		known(place("outputs", i), out.Volume)
	}
}

func (c *checker) medium(at string, v Volume) {
	kind, what, has := strings.Cut(v.Medium, ":")
	switch {
	case kind == "memory" && !has:
		if v.Size == 0 {
			c.add(at+".size", "a volume in memory requires a size, or it may use memory that the job needs")
		}
	case kind == "disk" && !has:
	case kind == "claim" && subdomain(what), kind == "existing" && subdomain(what):
	case kind == "host" && path.IsAbs(what):
	default:
		c.add(at+".medium", "unknown kind %q; use disk, memory, claim:PVC, host:/path or existing:VOLUME", v.Medium)
	}
}

func (c *checker) inputs(inputs []Input) {
	var names []string
	for i, in := range inputs {
		at := place("inputs", i)
		c.unique(at+".name", names, in.Name)
		names = append(names, in.Name)
		c.sources(at, in)
		c.oneOf(at+".mode", in.Mode, ModePrefetch, ModeWindow)
		switch {
		case in.Mode == ModeWindow && in.Window == nil:
			c.add(at+".window", "mode window requires a size: window: {size: 60Gi}")
		case in.Mode == ModePrefetch && in.Window != nil:
			c.add(at+".window", "it requires mode: window; set that or remove it")
		case in.Window != nil:
			c.window(at+".window", in.Window)
		}
		c.order(at, in)
		c.patterns(at+".include", in.Include)
		c.patterns(at+".exclude", in.Exclude)
		c.oneOf(at+".unpack", in.Unpack, UnpackNone, UnpackAuto)
		c.unpack(at, in)
		c.layout(at, in)
		c.oneOf(at+".verify", in.Verify, "auto")
		c.oneOf(at+".write", cmp.Or(in.Write, "auto"), "auto", "direct", "buffered")
		c.secret(at, in.Credentials)
	}
}

// unpack checks how archives are opened in a window.
func (c *checker) unpack(at string, in Input) {
	if in.Window == nil {
		return
	}
	switch auto := in.Unpack == UnpackAuto; {
	case auto && in.Window.Grouped():
		c.add(at+".unpack", "items: %s does not unpack archives; remove one of the two", in.Window.Items)
	case !auto && in.Window.Expand != 0:
		c.add(at+".window.expand", "it requires unpack: auto")
	}
	if in.Window.Expand < 0 || in.Window.Expand > maxExpand {
		c.add(at+".window.expand", "it must be from 1 to %d: the maximum size of unpacked files relative to the archive", maxExpand)
	}
}

// layout checks that an input can have the layout of the Hub's cache.
func (c *checker) layout(at string, in Input) {
	if in.Layout == "" {
		return
	}
	c.oneOf(at+".layout", in.Layout, LayoutKeys, LayoutHFCache)
	if in.Layout != LayoutHFCache {
		return
	}
	switch at += ".layout"; {
	case in.Mode == ModeWindow:
		c.add(at, "a window cannot have the layout hf-cache; use mode: prefetch, or remove it")
	case len(in.Sources) > 0 || !strings.HasPrefix(in.Source, "hf://"):
		c.add(at, "hf-cache requires a source of the Hugging Face Hub, such as hf://org/model@main")
	case in.Unpack == UnpackAuto:
		c.add(at, "hf-cache does not unpack archives; remove one of the two")
	}
}

func (c *checker) window(at string, w *Window) {
	c.oneOf(at+".release", w.Release, ReleaseLease, ReleaseUnlink, ReleaseRolling, ReleaseNever)
	c.oneOf(at+".layout", w.Layout, LayoutStage)
	c.items(at, w)
	c.notNegative(at+".parallel", w.Parallel)
	c.notNegative(at+".minReady.files", w.MinReady.Files)
	if w.Size == 0 {
		c.add(at+".size", "set the size of the window, such as 60Gi")
	} else if w.MinReady.Bytes > w.Size {
		c.add(at+".minReady.bytes", "the window of %s can never hold %s; use a lower value", w.Size, w.MinReady.Bytes)
	}
	if rolling := w.Release == ReleaseRolling; rolling && w.MinAge == 0 {
		c.add(at+".minAge", "release rolling requires the minimum age of a file, such as 10m")
	} else if !rolling && w.MinAge != 0 {
		c.add(at+".minAge", "it requires release: rolling")
	}
	c.notNegative(at+".groups", w.Groups)
	if w.Groups > 1024 {
		c.add(at+".groups", "groups must be at most 1024 (got %d)", w.Groups)
	} else if w.Groups != 0 && w.Release != ReleaseLease {
		c.add(at+".groups", "it requires release: lease; the file protocol does not support groups")
	}
	if w.Reuse != "" {
		c.oneOf(at+".reuse", w.Reuse, ReuseNone, ReuseFit, ReusePin)
		if w.Release == ReleaseRolling || w.Release == ReleaseNever {
			c.add(at+".reuse", "release: %s acknowledges nothing, so nothing can be reused; remove it", w.Release)
		}
	}
	if w.OnBad != "" {
		c.oneOf(at+".onBad", w.OnBad, BadFail, BadSkip, BadAllow)
	}
	if w.Release != ReleaseLease && w.LeaseTimeout != 0 {
		c.add(at+".leaseTimeout", "it requires release: lease")
	}
	if w.Release != ReleaseLease && w.AnyOrder {
		c.add(at+".anyOrder", "it requires release: lease; with the file protocol, readers choose the order")
	}
}

func (c *checker) items(at string, w *Window) {
	if w.Items != "" {
		c.oneOf(at+".items", w.Items, ItemsFiles, ItemsDirs, ItemsBundles)
	}
	switch bundles := w.Items == ItemsBundles; {
	case bundles && w.Bundle == 0:
		c.add(at+".bundle", "set the size of a bundle, such as 256Mi")
	case !bundles && w.Bundle != 0:
		c.add(at+".bundle", "it requires items: bundles")
	case bundles && w.Size != 0 && w.Bundle > w.Size:
		c.add(at+".bundle", "the window of %s can never hold a bundle of %s; use smaller bundles", w.Size, w.Bundle)
	}
}

func (c *checker) patterns(at string, patterns []string) {
	for i, p := range patterns {
		if strings.Trim(p, "/") == "" || !doublestar.ValidatePattern(p) {
			c.add(fmt.Sprintf("%s[%d]", at, i), "invalid pattern %q; use a pattern such as *.tar, val/** or shard-{00,01}.tar", p)
		}
	}
}

func (c *checker) outputs(outputs []Output) {
	var names, destinations []string
	for i, out := range outputs {
		at := place("outputs", i)
		c.unique(at+".name", names, out.Name)
		names = append(names, out.Name)
		c.urlWith(c.checkDestination, at+".destination", out.Destination)
		destination := strings.TrimRight(out.Destination, "/")
		if j := slices.Index(destinations, destination); j >= 0 {
			c.add(at+".destination", "output %s has the same destination; use a separate directory for each", names[j])
		}
		destinations = append(destinations, destination)
		c.oneOf(at+".commit", out.Commit, CommitCheckpoint, CommitNone)
		c.when(at, out)
		c.oneOf(at+".conflict", out.Conflict, ConflictFail, ConflictOverwrite, ConflictSuffix)
		c.keep(at, out)
		c.completion(at, out)
		if out.Nodes != "" {
			c.oneOf(at+".nodes", out.Nodes, NodesAll)
		}
		if out.Nodes != "" && out.Commit == CommitNone {
			c.add(at+".nodes", "it applies to checkpoints; it requires commit: %s", CommitCheckpoint)
		}
		if out.Deadline == 0 {
			c.add(at+".deadline", "the last upload needs a time limit, such as 10m")
		}
		c.secret(at, out.Credentials)
	}
}

// minBandwidths checks the outputs whose deadline follows from it. Call it before setDeadlines.
func (c *checker) minBandwidths(s *Spec) {
	for i, out := range s.Outputs {
		at := fmt.Sprintf("spec.outputs[%d].minBandwidth", i)
		switch {
		case out.MinBandwidth == 0:
		case out.Deadline != unstated:
			c.add(at, "it sets the output's deadline, but deadline: %s is set too; keep one", time.Duration(out.Deadline))
		case s.sizeOf(out.Volume) <= 0:
			c.add(at, "it derives the output's deadline from the size of its volume, which is not set; set the size, or use deadline instead")
		}
	}
}

// completion checks how checkpoints are numbered, and retained before they are complete.
func (c *checker) completion(at string, out Output) {
	if out.Step != "" {
		c.oneOf(at+".step", out.Step, StepAuto, StepName, StepTime)
	}
	if out.Step == StepTime && out.Nodes == NodesAll {
		c.add(at+".step", "nodes write at different times; with nodes: %s put the step number into the name, or call stager commit --step", NodesAll)
	}
	if out.Commit == CommitNone && out.Step != "" {
		c.add(at+".step", "it numbers checkpoints; it requires commit: %s", CommitCheckpoint)
	}
	if out.Hold == nil {
		return
	}
	if out.Commit == CommitNone {
		c.add(at+".hold", "it holds checkpoints; it requires commit: %s", CommitCheckpoint)
	}
	c.notNegative(at+".hold.checkpoints", out.Hold.Checkpoints)
	if p := out.Hold.Percent; p < 1 || p > 100 {
		c.add(at+".hold.percent", "it must be a percentage of the free space from 1 to 100 (got %d); to hold nothing, set checkpoints: 0", p)
	}
}

func (c *checker) keep(at string, out Output) {
	keep := out.Keep
	c.notNegative(at+".keep.last", keep.Last)
	c.notNegative(at+".keep.best", keep.Best)
	if keep.Every < 0 {
		c.add(at+".keep.every", "must not be negative (got %d)", keep.Every)
	}
	if out.Commit == CommitNone && keep.Last != 0 {
		c.add(at+".keep.last", "it counts checkpoints; it requires commit: %s", CommitCheckpoint)
	}
	if keep.Last == 0 && (keep.Every != 0 || keep.Best != 0) {
		c.add(at+".keep", "last is missing, so no checkpoint would be removed; set the number of newest checkpoints to keep")
	}
	if (keep.Best != 0) != (keep.Metric != "") {
		c.add(at+".keep.best", "best and metric must be set together, as in {best: 1, metric: loss}")
	}
	if keep.Mode != "" {
		c.oneOf(at+".keep.mode", keep.Mode, BestLowest, BestHighest)
	}
}

func (c *checker) when(at string, out Output) {
	if len(out.When) == 0 {
		c.add(at+".when", "an empty list never uploads anything; remove it for the default, [change, exit]")
	}
	for i, w := range out.When {
		entry := fmt.Sprintf("%s.when[%d]", at, i)
		c.oneOf(entry, w, WhenChange, WhenInterval, WhenExit, WhenSuccess, WhenFailure)
		if slices.Contains(out.When[:i], w) {
			c.add(entry, "duplicate %s; write it once", w)
		}
	}
	if has := slices.Contains(out.When, WhenInterval); has && out.Interval == 0 {
		c.add(at+".interval", "when: [interval] requires an interval, such as 15m")
	} else if !has && out.Interval != 0 {
		c.add(at+".interval", "it requires interval in the list when")
	}
}

// paths checks that no directory is used twice or contains another: each would treat the other's
// files as its own.
func (c *checker) paths(s *Spec) {
	type directory struct{ at, path string }
	var directories []directory
	for i, in := range s.Inputs {
		directories = append(directories, directory{place("inputs", i) + ".path", in.Path})
	}
	for i, out := range s.Outputs {
		directories = append(directories, directory{place("outputs", i) + ".path", out.Path})
	}
	for i, f := range directories {
		switch {
		case f.path == "":
			c.add(f.at, "set a directory, such as /data/train")
		case !path.IsAbs(f.path):
			c.add(f.at, "%q is not an absolute path; start it with /", f.path)
		case path.Clean(f.path) != strings.TrimSuffix(f.path, "/") || strings.ContainsFunc(f.path, isControl):
			c.add(f.at, "%q is not a clean path; remove empty parts, \".\" and \"..\", and do not use the root", f.path)
		}
		c.placeholders(f.at, f.path)
		for _, other := range directories[:i] {
			if f.path == "" || other.path == "" {
				continue
			}
			if within(f.path, other.path) || within(other.path, f.path) {
				c.add(f.at, "%s and %s (%s) contain each other; use separate directories", f.path, other.path, other.at)
			}
		}
	}
}

func within(inner, outer string) bool {
	return strings.HasPrefix(strings.TrimSuffix(inner, "/")+"/", strings.TrimSuffix(outer, "/")+"/")
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// The remaining methods check single values.

func (c *checker) url(at, url string) { c.urlWith(c.checkURL, at, url) }

func (c *checker) urlWith(check func(string) error, at, url string) {
	if url == "" {
		c.add(at, "set a URL, such as s3://bucket/directory/")
		return
	}
	c.placeholders(at, url)
	if check == nil {
		return
	}
	if err := check(placeholder.ReplaceAllString(url, "0")); err != nil {
		c.add(at, "%v", err)
	}
}

func (c *checker) oneOf(at, value string, known ...string) {
	if slices.Contains(known, value) {
		return
	}
	if meant := nearest(value, known); meant != "" {
		c.add(at, "unknown value %q; did you mean %s?", value, meant)
		return
	}
	last := len(known) - 1
	words := known[last]
	if last > 0 {
		words = strings.Join(known[:last], ", ") + " or " + words
	}
	c.add(at, "unknown value %q; use %s", value, words)
}

func (c *checker) notNegative(at string, n int) {
	if n < 0 {
		c.add(at, "must not be negative (got %d)", n)
	}
}

func (c *checker) unique(at string, before []string, name string) {
	if name != "" && slices.Contains(before, name) {
		c.add(at, "duplicate name %s; names must be unique", name)
	}
	c.name(at, name)
}

var (
	nameForm     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`) // with up to 63 bytes, see isName
	variableName = regexp.MustCompile(`^\$[A-Za-z_][A-Za-z0-9_]*$`)
)

func (c *checker) name(at, name string) {
	if name == "" {
		c.add(at, "a name is required")
	} else if !isName(name) {
		c.add(at, "invalid name %q: use up to 63 of a-z, 0-9 and -, with a letter or digit at both ends", name)
	}
}

// subdomain reports whether Kubernetes accepts text as the name of an object.
func subdomain(text string) bool {
	return len(text) <= 253 && !slices.ContainsFunc(strings.Split(text, "."), func(label string) bool {
		return !isName(label)
	})
}

func isName(text string) bool { return len(text) <= 63 && nameForm.MatchString(text) }

func place(list string, i int) string { return fmt.Sprintf("spec.%s[%d]", list, i) }

func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
