package explain

import (
	"cmp"
	"slices"
)

// decide derives the verdict from the findings.
func (e *explainer) decide() {
	slices.SortStableFunc(e.findings, func(a, b Finding) int {
		return cmp.Compare(slices.Index(kinds, a.Kind), slices.Index(kinds, b.Kind))
	})
	v := &e.report.Verdict
	v.Findings = e.findings
	switch {
	case len(e.findings) == 0:
		v.State, v.Findings = Fits, []Finding{}
	case e.findings[0].Kind == NotKnown:
		v.State, v.Kind = Unknown, NotKnown
	default:
		v.State, v.Kind = Fails, e.findings[0].Kind
	}
}
