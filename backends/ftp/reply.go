package ftp

import (
	"bufio"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// Codes of replies that the code acts upon.
const (
	codeOpening     = 150
	codeOK          = 200
	codeFile        = 213 // size or time
	codeReady       = 220
	codeDone        = 226
	codePassive     = 227
	codeExtended    = 229
	codeLoggedIn    = 230
	codeTLS         = 234
	codeCompleted   = 250
	codePath        = 257
	codePassword    = 331
	codeAccount     = 332
	codeClosing     = 421
	codeNoData      = 425
	codeAborted     = 426
	codeSyntax      = 500
	codeNotHere     = 502
	codeNotLoggedIn = 530
	codeNoFile      = 550
)

// Limits of a reply. A server that exceeds them is not an FTP server.
const (
	longestLine = 8 << 10
	mostLines   = 1000
)

// reply is the response to a command.
type reply struct {
	code  int
	lines []string // without the code
}

func (r reply) text() string { return strings.Join(r.lines, " ") }

// replyError is a reply that refuses a command.
type replyError struct{ reply }

func (e *replyError) Error() string {
	return fmt.Sprintf("the server replies %d %s", e.code, objectstore.OneLine(e.text()))
}

// is reports whether err is a reply with one of the codes.
func is(err error, codes ...int) bool {
	var refused *replyError
	if !errors.As(err, &refused) {
		return false
	}
	for _, code := range codes {
		if refused.code == code {
			return true
		}
	}
	return false
}

// says reports whether err is a reply whose text matches.
func says(err error, words *regexp.Regexp) bool {
	var refused *replyError
	return errors.As(err, &refused) && words.MatchString(refused.text())
}

// errNoReply reports that the other side does not follow the protocol.
var errNoReply = errors.New("this is not a reply of an FTP server")

// readReply reads one reply, which has one line, or several up to one with its code and a space.
func readReply(r *bufio.Reader) (reply, error) {
	var all reply
	for range mostLines {
		line, err := readLine(r)
		if err != nil {
			return reply{}, err
		}
		code := 0
		if len(line) >= 3 && (len(line) == 3 || line[3] == ' ' || line[3] == '-') {
			code, _ = strconv.Atoi(line[:3]) // 0 is no code
		}
		first := all.code == 0
		if first && (code < 100 || code > 599) {
			return reply{}, fmt.Errorf("%w: %s", errNoReply, objectstore.OneLine(line))
		}
		if first {
			all.code = code
		}
		if code != all.code {
			all.lines = append(all.lines, line)
			continue
		}
		more := len(line) > 3 && line[3] == '-'
		all.lines = append(all.lines, strings.TrimLeft(line[3:], "- "))
		if !more {
			return all, nil
		}
	}
	return reply{}, fmt.Errorf("%w: it has more than %d lines", errNoReply, mostLines)
}

// readLine returns a line without its end.
func readLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return "", fmt.Errorf("%w: a line has more than %d bytes", errNoReply, longestLine)
	}
	if err != nil {
		return "", err
	}
	return strings.TrimRight(string(line), "\r\n"), nil
}
