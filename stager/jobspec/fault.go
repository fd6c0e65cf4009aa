package jobspec

import (
	"errors"
	"fmt"
	"strings"

	"github.com/stager-dev/stager/stager/jobspec/yamledit"
)

// Fault is one reason why a file cannot be injected.
type Fault struct {
	Line, Column int    // in the file, from 1; 0: the whole file, or the whole line
	Object       string // "Job/train", or ""
	Text         string // what is wrong and how to fix it
}

// String returns "line 12, column 5: Job/train: what is wrong".
func (f Fault) String() string {
	s := f.Text
	if f.Object != "" {
		s = f.Object + ": " + s
	}
	switch {
	case f.Line > 0 && f.Column > 0:
		s = fmt.Sprintf("line %d, column %d: %s", f.Line, f.Column, s)
	case f.Line > 0:
		s = fmt.Sprintf("line %d: %s", f.Line, s)
	}
	return s
}

// Faults are all reasons why a file cannot be injected. It is the error type of this package's
// functions.
type Faults []Fault

// Error returns one line for each fault.
func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// stop is the panic value of refuse. [catch] recovers it.
type stop struct{ Fault }

// refuse aborts the work on a pod template because of a node; nil: because of the template as a
// whole.
func refuse(at *yamledit.Node, format string, args ...any) {
	f := Fault{Text: fmt.Sprintf(format, args...)}
	if at != nil {
		f.Line, f.Column = at.Position()
	}
	panic(stop{f})
}

// catch calls work and returns the fault with which it was refused, or nil.
func catch(work func()) (fault *Fault) {
	defer func() {
		if r := recover(); r != nil {
			s, ours := r.(stop)
			if !ours {
				panic(r)
			}
			fault = &s.Fault
		}
	}()
	work()
	return nil
}

// unreadable returns a syntax error as a fault.
func unreadable(err error) Fault {
	var syntax *yamledit.SyntaxError
	if errors.As(err, &syntax) {
		return Fault{Line: syntax.Line, Column: syntax.Column, Text: syntax.Text}
	}
	return Fault{Text: err.Error()}
}
