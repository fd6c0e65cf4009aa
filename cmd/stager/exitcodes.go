package main

import (
	"fmt"
	"strings"
)

// Exit codes, as in sysexits.h. A Job's podFailurePolicy uses them to decide whether a retry can
// help.
const (
	exitOK          = 0
	exitEnd         = 1 // stager next: the epoch has ended
	exitStale       = 1 // stager inject --check: a file is out of date
	exitUsage       = 64
	exitData        = 65
	exitNoInput     = 66
	exitUnavailable = 69
	exitSoftware    = 70
	exitNoSpace     = 73
	exitIO          = 74
	exitTryAgain    = 75
	exitCorrupt     = 76
	exitPermission  = 77
	exitConfig      = 78
)

// exitCode describes an exit code for the help and the manual.
type exitCode struct {
	Code    int    `json:"code"`
	Short   string `json:"short"`   // for "stager --help"; "": not there
	Meaning string `json:"meaning"` // for the manual
	Retry   string `json:"retry"`   // whether running the command again helps
}

// exitCodes describes every exit code, in their order.
var exitCodes = []exitCode{
	{exitOK, "done", "done", ""},
	{exitEnd, "end of the epoch (next)", "`next`: end of the epoch; `inject --check`: a file is out of date", ""},
	{exitUsage, "invalid plan or command line", "invalid plan or command line", "no"},
	{exitData, "annotations without effect (inject, explain)", "`inject`, `explain`: annotations or labels without effect; `inject --allow-unmatched` injects anyway", "with `--allow-unmatched`"},
	{exitNoInput, "source missing", "the source is missing", "no"},
	{exitUnavailable, "store or daemon unreachable", "the store, or the daemon, is unreachable", "yes"},
	{exitSoftware, "", "unexpected failure: please report it with the log", "perhaps"},
	{exitNoSpace, "no space", "no space; `explain`: the data will not fit", "after making room"},
	{exitIO, "local I/O error", "local I/O error", "on another node"},
	{exitTryAgain, "temporary failure", "temporary failure: interrupted, the source changed, a copy is incomplete, outputs are not saved, or another stager is at work", "yes"},
	{exitCorrupt, "wrong bytes", "wrong bytes: a checksum mismatch, a copy that differs, or skipped shards (`onBad: skip`)", "no"},
	{exitPermission, "permission denied", "permission denied", "no"},
	{exitConfig, "configuration", "invalid configuration: a URL or limit that cannot work, or a command that needs Linux", "no"},
}

// about is the first text of "stager --help".
var about = aboutText()

func aboutText() string {
	var codes []string
	for _, c := range exitCodes {
		if c.Short != "" {
			codes = append(codes, fmt.Sprintf("%d %s", c.Code, c.Short))
		}
	}
	return `Stages data into GPU jobs that run in short-lived containers, and saves their results before the containers are removed.

Exit codes: ` + strings.Join(codes, ", ") + "."
}
