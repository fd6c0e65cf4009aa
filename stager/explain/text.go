package explain

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
)

// Text writes the report in readable form.
func (r *Report) Text(w io.Writer) error {
	t := &text{Writer: bufio.NewWriter(w)}
	for i := range r.Pods {
		t.pod(&r.Pods[i])
	}
	t.left(r.Left)
	t.totals(r)
	t.verdict(&r.Verdict)
	return t.Flush()
}

// text writes two columns. Errors are reported by Flush.
type text struct{ *bufio.Writer }

func (t *text) line(format string, args ...any) { fmt.Fprintf(t, format+"\n", args...) }

// width is the line width in characters. Longer words exceed it.
const width = 118

// row writes a label and its text, wrapped in the second column.
func (t *text) row(label, format string, args ...any) {
	const column = 22
	head := "  " + label + strings.Repeat(" ", max(column-2-utf8.RuneCountInString(label), 1))
	words := strings.Fields(fmt.Sprintf(format, args...))
	line := head
	for i, word := range words {
		if i > 0 && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			t.line("%s", line)
			line = strings.Repeat(" ", column-1)
		}
		if i > 0 {
			line += " "
		}
		line += word
	}
	t.line("%s", line)
}

func (t *text) pod(p *Pod) {
	t.line("%s%s%s", p.Object, suffix(", ", p.Template), lineText(p.Line))
	t.row("found", "%s", p.Found)
	t.row("pods", "%s", podsText(p))
	t.row("begins", "%s", begins[p.Gate])
	if len(p.Outputs) == 0 {
		t.row("ends", "with its command: nothing is saved")
	} else {
		t.row("ends", "%s", ends[p.Finalize])
	}
	for _, w := range p.Warnings {
		t.row("warning", "%s", w)
	}
	t.line("\n  What is put in, and what for")
	t.parts(p.Parts)
	t.line("\n  Where the bytes lie, in each pod")
	for _, in := range p.Inputs {
		t.input(p, in)
	}
	for _, out := range p.Outputs {
		t.output(out)
	}
	for _, v := range p.Volumes {
		t.volume(v)
	}
	t.line("\n  What the pod asks for")
	t.row("memory", "%s", budgetText(p.Requests.Memory, p.Limits.Memory))
	t.row("ephemeral-storage", "%s", budgetText(p.Requests.Disk, p.Limits.Disk))
	t.row("grace period", "%s", secondsText(float64(p.Grace)))
	if s := p.Staging; s != nil {
		t.row("staging", "%s", stagingText(p, s))
	} else {
		t.row("staging", "unknown")
	}
	t.line("")
}

// begins and ends describe the values of gate and finalize.
var (
	begins = map[string]string{
		"init":    "when stager-prefetch has fetched the prefetched inputs (gate init)",
		"startup": "when the prefetched inputs, and the minReady of each window, are there (gate startup)",
		"none":    "at once: inputs come while the job runs (gate none)",
	}
	ends = map[string]string{
		"sidecar": "with its command; the sidecar saves outputs until the grace period ends (finalize sidecar)",
		"wrap":    "when its outputs are saved: stager is the parent of its command (finalize wrap)",
		"run":     "when its outputs are saved: stager runs in its container (finalize run)",
	}
)

func podsText(p *Pod) string {
	how := "unknown"
	switch {
	case p.Pods == 1:
		how = "1"
	case p.Pods > 0 && p.AtOnce == p.Pods:
		how = humanize.Comma(int64(p.Pods)) + ", all at once"
	case p.Pods > 0:
		how = fmt.Sprintf("%s, %s at once", humanize.Comma(int64(p.Pods)), humanize.Comma(int64(p.AtOnce)))
	}
	if p.PodsNote != "" {
		how += " (" + p.PodsNote + ")"
	}
	switch {
	case len(p.Inputs) == 0:
		return how
	case p.Sharing > 1:
		return fmt.Sprintf("%s; each takes its part of the inputs, one of %s", how, humanize.Comma(int64(p.Sharing)))
	case p.Sharing == 1 && p.Pods != 1:
		return how + "; each takes all of the inputs"
	}
	return how
}

// parts writes the injected parts. Parts that several containers have in common share a line.
func (t *text) parts(parts []Part) {
	type key struct{ kind, name, reason, things string }
	var order []key
	where := make(map[key][]string)
	for _, p := range parts {
		k := key{p.Kind, p.Name, p.Reason, strings.Join(p.For, ", ")}
		if where[k] == nil {
			order = append(order, k)
			where[k] = []string{}
		}
		if p.Container != "" && !slices.Contains(where[k], p.Container) {
			where[k] = append(where[k], p.Container)
		}
	}
	for _, k := range order {
		name := k.name
		if in := where[k]; len(in) > 0 {
			name = strings.TrimSpace(name + " in " + strings.Join(in, ", "))
		}
		if k.things != "" {
			name += " – " + k.things
		}
		t.row(k.kind, "%s", strings.TrimPrefix(name+": "+k.reason, ": "))
	}
}

func (t *text) input(p *Pod, in Input) {
	how := in.Mode
	if in.Window > 0 {
		how = "a window of " + bytesText(in.Window)
	}
	t.row("input "+in.Name, "%s → %s on volume %s, %s", strings.Join(in.URLs, " and "), in.Path, in.Volume, how)
	if in.SizeFrom == Nowhere {
		t.row("", "its size is not known%s", behind(in.Note))
		return
	}
	size := bytesText(in.Bytes)
	if in.AtLeast {
		size = "at least " + size
	}
	if in.Objects > 0 {
		size = fmt.Sprintf("%s, %s, the largest %s", countText(in.Objects, "object"), size, bytesText(in.Largest))
	}
	t.row("", "%s (%s)%s", size, from[in.SizeFrom], behind(in.Note))
	if p.Sharing > 1 || in.Epochs != 1 {
		often := ""
		switch {
		case in.Epochs == 0:
			often = " in each epoch"
		case in.Epochs > 1:
			often = fmt.Sprintf(" in each of %d epochs", in.Epochs)
		}
		t.row("", "the pod that takes most takes %s%s", bytesText(in.PodTakes), often)
	}
}

// from describes the origins of sizes.
var from = map[string]string{Listed: "listed", Assumed: "assumed", AtMost: "what the plan allows"}

func (t *text) output(out Output) {
	t.row("output "+out.Name, "%s on volume %s → %s", out.Path, out.Volume, out.Destination)
	if out.Checkpoint == 0 {
		t.row("", "the size of its checkpoints is not known; its deadline is %s", secondsText(float64(out.Deadline)))
		return
	}
	how := ""
	if out.Upload > 0 {
		how = ", saved in " + secondsText(float64(out.Upload))
	}
	t.row("", "checkpoints of %s%s; its deadline is %s", bytesText(out.Checkpoint), how, secondsText(float64(out.Deadline)))
}

func (t *text) volume(v Volume) {
	whose := "of the pod"
	if v.Own {
		whose = "put in"
	}
	limit := "without a limit"
	if v.Limit > 0 {
		limit = "of " + bytesText(v.Limit) + " at most"
	}
	needs := bytesText(v.Needs)
	switch {
	case !v.Known && v.Needs == 0:
		needs = "an unknown size"
	case !v.Known:
		needs = "at least " + needs
	}
	t.row("volume", "%s, %s, %s, %s: %s takes %s", v.Name, v.Medium, whose, limit, strings.Join(v.For, " and "), needs)
}

func budgetText(request, limit int64) string {
	text := "no request"
	if request > 0 {
		text = "requests " + bytesText(request)
	}
	if limit > 0 {
		return text + ", limits " + bytesText(limit)
	}
	return text + ", no limit"
}

func stagingText(p *Pod, s *Staging) string {
	if s.Bytes == 0 {
		return "nothing is waited for"
	}
	text := fmt.Sprintf("%s for %s, limited by %s", secondsText(s.Seconds), bytesText(s.Bytes), limited[s.LimitedBy])
	if s.AtLeast {
		text = "at least " + text
	}
	if p.AtOnce > 1 {
		text += fmt.Sprintf(", while %s pods stage at once", humanize.Comma(int64(p.AtOnce)))
	}
	return text
}

var limited = map[string]string{
	"node": "the node's bandwidth", "plan": "the plan's limits.bandwidth", "store": "the store's bandwidth", "requests": "the store's requests per second",
}

func (t *text) left(all []Left) {
	for _, l := range all {
		t.line("%s%s: left alone, because %s", l.Object, lineText(l.Line), l.Reason)
	}
	if len(all) > 0 {
		t.line("")
	}
}

func (t *text) totals(r *Report) {
	if len(r.Stores) == 0 {
		return
	}
	t.line("What all pods ask of the stores")
	for _, s := range r.Stores {
		t.row(s.Name, "%s: %s%s%s", s.URL, storeText(s.Requests, s.Egress, s.Ingress, s.AtLeast), costText(s.Cost, r.Total.Currency), suffix("; ", s.Note))
	}
	all := r.Total
	t.row("together", "%s%s", storeText(all.Requests, all.Egress, all.Ingress, all.AtLeast), costText(all.Cost, all.Currency))
	t.line("")
}

func storeText(n Requests, out, in int64, atLeast bool) string {
	var words []string
	for _, r := range []struct {
		n    int64
		kind string
	}{{n.List, "list"}, {n.Get, "get"}, {n.Put, "put"}} {
		if r.n > 0 {
			words = append(words, humanize.Comma(r.n)+" "+r.kind)
		}
	}
	if out > 0 {
		words = append(words, bytesText(out)+" out")
	}
	if in > 0 {
		words = append(words, bytesText(in)+" in")
	}
	if len(words) == 0 {
		return "unknown"
	}
	text := strings.Join(words, ", ")
	if atLeast {
		return "at least " + text
	}
	return text
}

func costText(cost *float64, currency string) string {
	if cost == nil {
		return ""
	}
	return "; " + humanize.CommafWithDigits(*cost, 2) + " " + currency
}

func (t *text) verdict(v *Verdict) {
	switch v.State {
	case Fits:
		t.line("Verdict: it fits")
	case Unknown:
		t.line("Verdict: unknown, since something that decides is not known")
	default:
		t.line("Verdict: it does not fit")
	}
	for _, f := range v.Findings {
		sign := "✗"
		if f.Kind == NotKnown {
			sign = "?"
		}
		t.row(sign+" "+f.Name, "%s%s", f.Object+": ", f.Text)
		if f.Add != "" {
			t.row("    add", "%s%s", f.Add, lineText(f.Line))
		}
	}
}

// lineText returns " (line 12)", or "" for line 0.
func lineText(line int) string {
	if line == 0 {
		return ""
	}
	return fmt.Sprintf(" (line %d)", line)
}

func suffix(separator, text string) string {
	if text == "" {
		return ""
	}
	return separator + text
}

func countText(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return humanize.Comma(n) + " " + what + "s"
}

// bytesText formats a number of bytes.
func bytesText(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// apart formats two numbers of bytes, exactly if they would otherwise look the same.
func apart(a, b int64) (string, string) {
	if x, y := bytesText(a), bytesText(b); x != y {
		return x, y
	}
	return humanize.Comma(a) + " bytes", humanize.Comma(b) + " bytes"
}

// secondsText formats a duration.
func secondsText(seconds float64) string {
	d := time.Duration(cmp.Or(seconds, 0) * float64(time.Second))
	switch {
	case seconds > 1e9:
		return "over 30 years"
	case d >= 10*time.Second:
		return d.Round(time.Second).String()
	}
	return d.Round(100 * time.Millisecond).String()
}
