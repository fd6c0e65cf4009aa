package ftp

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// What servers say. The codes alone do not tell these cases apart.
var (
	fullWords    = regexp.MustCompile(`(?i)too many|maximum|limit|no more|busy|exceed`)
	tlsWords     = regexp.MustCompile(`(?i)\b(tls|ssl|auth)\b|encrypt|cleartext`)
	missingWords = regexp.MustCompile(`(?i)no such|not found|not exist|cannot find`)
	deniedWords  = regexp.MustCompile(`(?i)permission|denied|not permitted|not allowed|forbidden`)
)

// errNoGreeting reports that the server closed the connection at once.
var errNoGreeting = errors.New("the server closed the connection before its greeting: it accepts no more connections, or none from here")

// full reports whether the server accepts no more connections now.
func full(err error) bool {
	return errors.Is(err, errNoGreeting) || is(err, codeClosing, codeNotLoggedIn) && says(err, fullWords)
}

// demandsTLS reports whether a reply refuses a command because it is not encrypted.
func demandsTLS(command string, r reply) bool {
	switch {
	case strings.HasPrefix(command, "AUTH "):
		return false
	case slices.Contains([]int{521, 522, 533, 534}, r.code):
		return true
	}
	login := strings.HasPrefix(command, "USER ") || strings.HasPrefix(command, "PASS ")
	return login && r.code >= 400 && tlsWords.MatchString(r.text())
}

// explain converts an error of a connection to a *backends.Error with a readable message.
func explain(op, key string, err error) error {
	var (
		done    *backends.Error
		local   *backends.LocalError
		dns     *net.DNSError
		netw    net.Error
		lost    *lostError
		refused *replyError
	)
	as := func(kind backends.Kind, format string, args ...any) error {
		return backends.Errorf(kind, op, key, format, args...)
	}
	switch {
	case err == nil || errors.As(err, &done) || errors.As(err, &local):
		return err
	case full(err):
		return as(backends.Throttled, "the server accepts no more connections now (%w)", err)
	case errors.As(err, &refused):
		return as(kindOf(refused), "%s%w", words(refused), err)
	case objectstore.Connection(err) != nil:
		return &backends.Error{Op: op, Key: key, Kind: backends.Invalid, Err: objectstore.Connection(err)}
	case errors.As(err, &dns) && dns.IsNotFound:
		return as(backends.Unavailable, "unknown host name: %w", err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return as(backends.Unavailable, "no FTP server at this address: %w", fileshare.Innermost(err))
	case errors.As(err, &lost):
		return &backends.Error{Op: op, Key: key, Kind: backends.Unavailable, Err: fmt.Errorf("the connection was lost: %w", fileshare.Innermost(lost.err))}
	case errors.As(err, &netw), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return &backends.Error{Op: op, Key: key, Kind: backends.Unavailable, Err: err}
	}
	return &backends.Error{Op: op, Key: key, Kind: backends.KindOf(err), Err: err}
}

// kindOf returns the kind of a refusal.
func kindOf(r *replyError) backends.Kind {
	switch {
	case r.code == codeNoFile && deniedWords.MatchString(r.text()):
		return backends.Permission
	case r.code == codeNoFile, r.code == 553, r.code == 450 && missingWords.MatchString(r.text()):
		return backends.NotExist
	case r.code == codeNotLoggedIn, r.code == 532:
		return backends.Permission
	case r.code >= codeSyntax && r.code <= 504:
		return backends.Unsupported
	case r.code < codeSyntax:
		return backends.Unavailable
	}
	return backends.Unknown
}

// words returns what a refusal means.
func words(r *replyError) string {
	switch kindOf(r) {
	case backends.Permission:
		return "permission denied for this user: "
	case backends.NotExist:
		return "there is no such file or directory: "
	case backends.Unsupported:
		return "the server lacks a command that reading needs: "
	}
	return ""
}

// missing is explain for calls that look up a file.
func missing(op, key string, err error) error {
	if err = explain(op, key, err); op == "list" && backends.KindOf(err) == backends.NotExist && !errors.Is(err, fs.ErrPermission) {
		// Empty recognizes a directory that does not exist yet.
		return &backends.Error{Op: op, Key: key, Kind: backends.NotExist, Err: backends.InWords("there is no such directory", syscall.ENOENT)}
	}
	return err
}
