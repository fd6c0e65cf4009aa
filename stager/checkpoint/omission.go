package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"

	"github.com/stager-dev/stager/backends"
)

// Omission is an entry of a directory that is not saved in the store.
type Omission struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// OmittedError reports the entries of a directory that could not be saved. All other entries are
// in the store.
type OmittedError struct{ Files []Omission }

// omittedNamed is the maximum number of names in the text of an OmittedError. The log lists all.
const omittedNamed = 5

func (e *OmittedError) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d of the entries cannot be saved, the others are: ", len(e.Files))
	for i, f := range e.Files {
		if i == omittedNamed {
			fmt.Fprintf(&text, "; and %d more, see the log", len(e.Files)-i)
			break
		}
		if i > 0 {
			text.WriteString("; ")
		}
		fmt.Fprintf(&text, "%q: %s", f.Name, f.Reason)
	}
	return text.String()
}

// omittedErr returns an *OmittedError, or nil when nothing was omitted.
func omittedErr(omitted []Omission) error {
	if len(omitted) == 0 {
		return nil
	}
	return &OmittedError{omitted}
}

// refusal returns why a store refused a file because of its name. Other files may still succeed.
// ok is false for all other errors.
func refusal(err error) (reason string, ok bool) {
	e, ok := errors.AsType[*backends.Error](err)
	if !ok {
		return "", false
	}
	switch e.Kind {
	case backends.Invalid, backends.Exist, backends.Unsupported:
		return e.Err.Error(), true
	}
	return "", false
}

// unreadable returns why the permissions of a local file prevent reading it. Other files may be
// readable.
func unreadable(err error) (reason string, ok bool) {
	if _, named := errors.AsType[*backends.Error](err); named || !errors.Is(err, fs.ErrPermission) {
		return "", false
	}
	return "it cannot be read: " + cause(err).Error(), true
}

// oneName returns the reason for omitting a file that would replace another file of the same
// directory.
func oneName(other string) string {
	if other == "" {
		return "the destination has a file under this name already, which is another one's short name; rename it"
	}
	return fmt.Sprintf("the destination keeps it and %q under one name, as it ignores case or forms of characters; rename one of them", other)
}

// logOmitted logs entries that are not saved.
func logOmitted(log *slog.Logger, omitted, empty []Omission) {
	for _, o := range omitted {
		log.Warn("a file cannot be saved", "name", fmt.Sprintf("%q", o.Name), "reason", o.Reason)
	}
	const named = 20
	for i, o := range empty {
		if i == named {
			log.Info("more entries have no content to save", "count", len(empty)-i)
			break
		}
		log.Info("an entry has no content to save", "name", fmt.Sprintf("%q", o.Name), "reason", o.Reason)
	}
}
