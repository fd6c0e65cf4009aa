package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager"
	"github.com/stager-dev/stager/stager/admission/setup"
	"github.com/stager-dev/stager/stager/api"
	"github.com/stager-dev/stager/stager/check"
	"github.com/stager-dev/stager/stager/checkpoint"
	"github.com/stager-dev/stager/stager/download"
	"github.com/stager-dev/stager/stager/jobspec"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/stager/sample"
	"github.com/stager-dev/stager/window"
	"github.com/stager-dev/stager/window/disk"
)

func store(kind backends.Kind) error {
	return &backends.Error{Op: "read", Store: "s3://b", Key: "k", Kind: kind, Err: errors.New("no")}
}

func local(err error) error { return &backends.LocalError{Err: err} }

func TestExitCodes(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{exitError(exitEnd), 1},
		{errors.New("nobody foresaw it"), 70},

		{store(backends.NotExist), 66},
		{store(backends.Permission), 77},
		{store(backends.Invalid), 78},
		{store(backends.Unsupported), 78},
		{store(backends.Exist), 78},
		{store(backends.Changed), 75},
		{store(backends.Canceled), 75},
		{store(backends.Corrupt), 76},
		{store(backends.NoSpace), 73},
		{store(backends.Throttled), 69},
		{store(backends.Unavailable), 69},
		{store(backends.Unknown), 70},

		{local(syscall.ENOSPC), 73},
		{local(syscall.EDQUOT), 73},
		{local(syscall.EACCES), 77},
		{local(syscall.EROFS), 77},
		{local(syscall.EIO), 74},
		{local(errors.New("the file was truncated during the upload")), 74},
		{&backends.Error{Op: "write", Kind: backends.NoSpace, Err: local(syscall.ENOSPC)}, 73},
		{&fs.PathError{Op: "open", Path: "/x", Err: syscall.EIO}, 74},
		{&os.LinkError{Op: "rename", Old: "/x", New: "/y", Err: syscall.EIO}, 74}, // the last rename of a restore, which was 70
		{fmt.Errorf("rename: %w", syscall.EIO), 74},
		{&fs.PathError{Op: "open", Path: "/x", Err: syscall.ENOSPC}, 73},
		{&fs.PathError{Op: "open", Path: "/x", Err: syscall.EACCES}, 77},
		{&fs.PathError{Op: "open", Path: "/x", Err: syscall.ENOENT}, 74},

		{fmt.Errorf("the journal: %w", &disk.NotRegularError{Path: ".stager/journal", Mode: fs.ModeDir}), 78}, // was 70
		{&disk.TooLargeError{Path: ".stager/plan", Limit: disk.Limit}, 78},

		{plan.Faults{{Path: "spec"}}, 64},
		{&plan.EnvError{Err: errors.New("set STAGER_COUNT")}, 78},
		{&plan.EnvError{Err: plan.Faults{{Path: "spec"}}}, 78},
		{&usageError{err: errors.New("what?")}, 64},
		{&interruptedError{context.Canceled}, 75},
		{context.Canceled, 75},

		{jobspec.Faults{{}}, 64},
		{&setup.PolicyError{Text: "no"}, 64},
		{&stoppedError{new(check.InterruptedError)}, 75},
		{&disk.OutsideError{}, 78},
		{&sample.ArchiveError{Err: errors.New("cut")}, 76},
		{&sample.RoomError{}, 78},
		{&download.UnusableError{Err: errors.New("cut"), Damaged: true}, 76},
		{&download.UnusableError{Err: errors.New("a link leads out")}, 78},
		{&checkpoint.NodeError{Reason: "it has 2 nodes"}, 78},
		{&checkpoint.OmittedError{}, 75},
		{&checkpoint.RefusedError{Job: "job-a"}, 78},
		{&checkpoint.BusyError{Dir: "/out"}, 75},
		{&window.BudgetError{Have: 1, Need: 2}, 78},
		{&disk.BusyError{}, 75},
		{&window.BadItemError{Name: "s"}, 76},
		{&window.BadItemError{Name: "s", Err: window.ErrCorrupt}, 76},
		{&window.BadItemError{Name: "s", Err: window.ErrGone}, 75},
		{&window.SkippedError{Items: []window.BadItem{{Name: "s"}}}, 76},

		{&stager.ChildError{Code: 3}, 3},
		{&stager.ChildError{Code: 137}, 137},
		{&stager.StartError{Err: fs.ErrNotExist}, 64},
		{&stager.StartError{Err: exec.ErrNotFound}, 64},
		{&stager.StartError{Err: fs.ErrPermission}, 64},
		{&stager.StartError{Err: syscall.ENOEXEC}, 64},
		{&stager.StartError{Err: syscall.EAGAIN}, 75},
		{&stager.NotStartedError{}, 75},
		{&stager.SocketInUseError{Path: "/s"}, 75},
		{&stager.SocketError{Err: syscall.EACCES}, 77},
		{&stager.SocketError{Err: errors.New("too long")}, 78},
		{&stager.PortError{Err: syscall.EADDRINUSE}, 75},
		{&stager.PortError{Err: errors.New("missing port")}, 78},
		{&stager.UnsavedError{Err: errors.New("step 3")}, 75},
		{&stager.UnsavedError{Err: store(backends.Permission)}, 75},
		{&stager.UnsavedError{Err: local(syscall.EIO)}, 75},

		{&api.UnreachableError{Socket: "/s", Err: syscall.ECONNREFUSED}, 69},
		{&api.RefusedError{Status: http.StatusServiceUnavailable, Words: "not yet"}, 75},
		{&api.RefusedError{Status: http.StatusConflict, Words: "it changed"}, 75},
		{&api.RefusedError{Status: http.StatusInsufficientStorage, Words: "no space"}, 75},
		{&api.RefusedError{Status: http.StatusNotFound, Words: "no such input"}, 64},
		{&api.RefusedError{Status: http.StatusInternalServerError, Words: "lost"}, 70},
	} {
		for _, err := range []error{tt.err, wrapped(tt.err)} {
			if got := report(new(bytes.Buffer), err); got != tt.want {
				t.Errorf("%T %v: got code %d, want %d", tt.err, err, got, tt.want)
			}
		}
	}
}

// wrapped wraps err as callers do.
func wrapped(err error) error {
	if err == nil {
		return nil
	}
	return errors.Join(fmt.Errorf("input train: %w", err), nil)
}

func TestReport(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{exitError(75), ""},
		{&stager.ChildError{Code: 3}, ""},
		{errors.New("one\ntwo"), "stager: one\n  two\n"},
		{store(backends.NotExist), "stager: read s3://b k: no\n"},
		{store(backends.Unavailable), "stager: read s3://b k: no\nhint: check that the endpoint is correct and reachable; --retry-for sets how long to retry\n"},
	} {
		var out bytes.Buffer
		report(&out, tt.err)
		if out.String() != tt.want {
			t.Errorf("%v: got %q, want %q", tt.err, out.String(), tt.want)
		}
	}
	for kind, word := range map[backends.Kind]string{backends.Permission: "AWS_ACCESS_KEY_ID", backends.Throttled: "--connections", backends.NotExist: ""} {
		if got := hintFor(store(kind)); !strings.Contains(got, word) || (word == "") != (got == "") {
			t.Errorf("the hint for %s is %q, want one of %q", kind, got, word)
		}
	}
	// A TLS port may close a connection without a word when it receives plain HTTP.
	for cause, want := range map[error]bool{io.ErrUnexpectedEOF: true, io.EOF: true, &net.OpError{Op: "read", Err: syscall.ECONNRESET}: true, syscall.ECONNREFUSED: false} {
		for store, plain := range map[string]bool{"s3://b": true, "oss://b": true, "gs://b": true, "az://b": true, "nfs://server/b": false} {
			err := fmt.Errorf("input train: %w", &backends.Error{Op: "list", Store: store, Kind: backends.Unavailable, Err: cause})
			if got := strings.Contains(hintFor(err), "https://"); got != (want && plain) {
				t.Errorf("%s, %v: the hint names https:// %t, want %t", store, cause, got, want && plain)
			}
		}
	}
	// These are of kind Permission, and the credentials of the store would not help.
	for cause, word := range map[error]string{backends.ErrClock: "Set this machine's clock", backends.ErrProxy: ""} {
		err := fmt.Errorf("input train: %w", &backends.Error{Op: "list", Store: "s3://b", Kind: backends.Permission, Err: cause})
		if got := hintFor(err); !strings.Contains(got, word) || strings.Contains(got, "AWS_") {
			t.Errorf("the hint for %q is %q, want %q", cause, got, word)
		}
	}
}

// The help and the manual describe every exit code that a command can return, in order.
func TestCodesAreReported(t *testing.T) {
	returned := []int{
		exitOK, exitEnd, exitUsage, exitData, exitNoInput, exitUnavailable, exitSoftware, exitNoSpace, exitIO, exitTryAgain, exitCorrupt, exitPermission, exitConfig,
	}
	var described []int
	for _, e := range exitCodes {
		described = append(described, e.Code)
		if e.Code != exitSoftware && !strings.Contains(about, fmt.Sprintf(" %d ", e.Code)) {
			t.Errorf("stager --help does not describe exit code %d", e.Code)
		}
	}
	if !slices.Equal(described, returned) {
		t.Errorf("got descriptions of the codes %v, want %v", described, returned)
	}
}
