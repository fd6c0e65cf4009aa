package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/all"
	"github.com/stager-dev/stager/stager"
	"github.com/stager-dev/stager/stager/admission/setup"
	"github.com/stager-dev/stager/stager/api"
	"github.com/stager-dev/stager/stager/checkpoint"
	"github.com/stager-dev/stager/stager/download"
	"github.com/stager-dev/stager/stager/explain"
	"github.com/stager-dev/stager/stager/jobspec"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/stager/sample"
	"github.com/stager-dev/stager/window"
	"github.com/stager-dev/stager/window/disk"
)

// usageError reports an invalid command line.
type usageError struct{ err error }

// Error refers to the help if the parser rejected the command line.
func (e *usageError) Error() string {
	var parse *kong.ParseError
	if !errors.As(e.err, &parse) {
		return e.err.Error()
	}
	command := "stager"
	if node := parse.Context.Selected(); node != nil {
		command = node.FullPath()
	}
	return fmt.Sprintf("%v; see %s --help", e.err, command)
}

func (e *usageError) Unwrap() error { return e.err }

// interruptedError reports that a signal ended the command.
type interruptedError struct{ err error }

func (e *interruptedError) Error() string {
	return "interrupted; run the command again to resume"
}
func (e *interruptedError) Unwrap() error { return e.err }

// exitError is an exit code without a message.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// report prints an error for people and returns the exit code.
func report(w io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	var silent exitError
	if errors.As(err, &silent) {
		return int(silent)
	}
	var child *stager.ChildError
	if errors.As(err, &child) {
		return child.Code // the child has printed its own error
	}
	fmt.Fprintln(w, "stager: "+strings.ReplaceAll(err.Error(), "\n", "\n  "))
	if hint := hintFor(err); hint != "" {
		fmt.Fprintln(w, "hint: "+hint)
	}
	return codeFor(err)
}

// codeFor maps errors to exit codes.
func codeFor(err error) int {
	var (
		bad     *window.BadItemError
		skipped *window.SkippedError
		unsaved *stager.UnsavedError
	)
	if errors.As(err, &unsaved) { // for any reason
		return exitTryAgain
	}
	if code, ok := codeForTypes(err); ok {
		return code
	}
	switch {
	case errors.Is(err, window.ErrCorrupt):
		return exitCorrupt
	case errors.Is(err, window.ErrGone):
		return exitTryAgain
	case errors.As(err, &bad) && bad.Err == nil:
		return exitCorrupt // as readers report it
	case errors.As(err, &skipped):
		return exitCorrupt
	}
	var local *backends.LocalError
	var e *backends.Error
	var path *fs.PathError
	var link *os.LinkError // also from a rename
	switch {
	case errors.As(err, &local):
		return codeForDisk(err)
	case errors.As(err, &e):
		return codeForKind(e.Kind)
	case errors.As(err, &path), errors.As(err, &link), errors.Is(err, syscall.EIO), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return codeForDisk(err)
	case errors.Is(err, context.Canceled):
		return exitTryAgain
	}
	return exitSoftware
}

// codeForTypes maps the types of err and its causes. The outermost error with a code decides, as in
// [errors.As].
func codeForTypes(err error) (code int, ok bool) {
	if code, ok := codeForType(err); ok {
		return code, true
	}
	switch wrapped := err.(type) { //nolint:errorlint // this is the walk through the causes
	case interface{ Unwrap() error }:
		if err := wrapped.Unwrap(); err != nil {
			return codeForTypes(err)
		}
	case interface{ Unwrap() []error }:
		for _, err := range wrapped.Unwrap() {
			if code, ok := codeForTypes(err); ok {
				return code, true
			}
		}
	}
	return 0, false
}

// codeForType maps the types of errors that have a code, whatever their cause, and those whose
// cause decides between two.
func codeForType(err error) (code int, ok bool) {
	switch e := err.(type) { //nolint:errorlint // codeForTypes walks through the causes
	case *usageError, plan.Faults, jobspec.Faults, *setup.PolicyError:
		return exitUsage, true
	case *kubectlError:
		return e.code, true
	case *api.UnreachableError:
		return exitUnavailable, true
	case *interruptedError, *stoppedError, *disk.BusyError, *checkpoint.BusyError, *checkpoint.OmittedError, *stager.SocketInUseError, *stager.NotStartedError:
		return exitTryAgain, true
	case *sample.ArchiveError:
		return exitCorrupt, true
	case *linuxOnlyError, *readOnlyError, *plan.EnvError, *window.BudgetError, *sample.RoomError, *disk.OutsideError, *disk.NotRegularError, *disk.TooLargeError, *checkpoint.NodeError, *checkpoint.RefusedError:
		return exitConfig, true
	case *download.UnusableError:
		return either(e.Damaged, exitCorrupt, exitConfig), true
	case *stager.PortError:
		return either(errors.Is(e.Err, syscall.EADDRINUSE), exitTryAgain, exitConfig), true
	case *stager.SocketError:
		return either(errors.Is(e.Err, fs.ErrPermission), exitPermission, exitConfig), true
	case *stager.StartError:
		return codeForStart(e.Err), true
	case *api.RefusedError:
		return codeForStatus(e.Status), true
	}
	return 0, false
}

func either(first bool, code, other int) int {
	if first {
		return code
	}
	return other
}

// codeForStart maps why a command could not be started. A command that is missing or not executable
// stays so; other failures are of the machine, and may pass.
func codeForStart(err error) int {
	for _, wrong := range []error{exec.ErrNotFound, fs.ErrNotExist, fs.ErrPermission, syscall.ENOEXEC} {
		if errors.Is(err, wrong) {
			return exitUsage
		}
	}
	return exitTryAgain
}

// codeForStatus maps the HTTP status of an error response of the daemon.
func codeForStatus(status int) int {
	switch {
	case status == http.StatusServiceUnavailable, status == http.StatusConflict, status == http.StatusInsufficientStorage:
		return exitTryAgain
	case status < http.StatusInternalServerError:
		return exitUsage
	}
	return exitSoftware
}

// codeForDisk maps failures of local files.
func codeForDisk(err error) int {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return exitNoSpace
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return exitPermission
	}
	return exitIO
}

func codeForKind(kind backends.Kind) int {
	switch kind {
	case backends.NotExist:
		return exitNoInput
	case backends.Permission:
		return exitPermission
	case backends.Invalid, backends.Unsupported, backends.Exist:
		return exitConfig
	case backends.Corrupt:
		return exitCorrupt
	case backends.NoSpace:
		return exitNoSpace
	case backends.Changed, backends.Canceled:
		return exitTryAgain
	case backends.Throttled, backends.Unavailable:
		return exitUnavailable
	case backends.Unknown:
	}
	return exitSoftware
}

// verdicts maps findings of stager explain to exit codes.
var verdicts = map[explain.Kind]int{
	explain.MissingSource: exitNoInput, explain.Forbidden: exitPermission, explain.Unreachable: exitUnavailable,
	explain.NoSpace: exitNoSpace, explain.BadLimit: exitConfig, explain.NoEffect: exitData, explain.NotKnown: exitTryAgain,
}

// codeForVerdict returns the code of the most important finding; kind is "" if there is none.
func codeForVerdict(kind explain.Kind) int {
	if code, known := verdicts[kind]; known || kind == "" {
		return code
	}
	return exitSoftware
}

// hintFor returns what to do about an error, as a sentence, or "".
func hintFor(err error) string {
	var e *backends.Error
	if !errors.As(err, &e) {
		return ""
	}
	name, _, _ := strings.Cut(e.Store, "://")
	switch {
	case errors.Is(err, backends.ErrClock):
		return "Set this machine's clock, for example by NTP. The credentials were not checked."
	case errors.Is(err, backends.ErrProxy):
		return "" // the credentials of the store would not help
	}
	switch e.Kind {
	case backends.Permission:
		for _, scheme := range all.Registry().Schemes() {
			if scheme.Name == name {
				return scheme.Credentials
			}
		}
	case backends.Throttled:
		return "use fewer --connections, or wait longer with --retry-for"
	case backends.Unavailable:
		if slices.Contains([]string{"s3", "oss", "gs", "az"}, name) && disconnected(err) {
			return "check that the endpoint is correct, with https:// if the server uses TLS, and reachable; --retry-for sets how long to retry"
		}
		return "check that the endpoint is correct and reachable; --retry-for sets how long to retry"
	}
	return ""
}

// disconnected reports whether the server closed a connection. So do TLS ports that receive plain
// HTTP, unless they send an alert or a page.
func disconnected(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
}
