package git

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// packetKind tells the packets that end something from those with contents.
type packetKind int

const (
	flushPacket packetKind = iota // 0000
	delimPacket                   // 0001
	endPacket                     // 0002
	dataPacket
)

const (
	packetHead = 4     // four hexadecimal digits, which count themselves
	maxPacket  = 65520 // with its head
)

// errNoPacket reports that something else than packets arrived.
var errNoPacket = errors.New("the server does not respond as a Git server does")

// remoteError is a message with which the server ends a request.
type remoteError struct {
	text  string
	fatal bool // in the middle of the objects
}

func (e *remoteError) Error() string { return "the server says: " + objectstore.OneLine(e.text) }

// packets reads the pkt-line format of Git.
type packets struct {
	in  *bufio.Reader
	buf [maxPacket]byte
}

func newPackets(r io.Reader) *packets { return &packets{in: bufio.NewReaderSize(r, maxPacket)} }

// next returns the contents of the next packet, which are valid until the next call.
func (p *packets) next() ([]byte, packetKind, error) {
	if _, err := io.ReadFull(p.in, p.buf[:packetHead]); err != nil {
		return nil, 0, cut(err)
	}
	n, err := strconv.ParseUint(string(p.buf[:packetHead]), 16, 16)
	switch {
	case err != nil || n == 3 || n > maxPacket:
		return nil, 0, errNoPacket
	case n < packetHead:
		return nil, packetKind(n), nil
	}
	data := p.buf[:n-packetHead]
	if _, err := io.ReadFull(p.in, data); err != nil {
		return nil, 0, cut(err)
	}
	if text, failed := bytes.CutPrefix(data, []byte("ERR ")); failed {
		return nil, 0, &remoteError{text: string(text)}
	}
	return data, dataPacket, nil
}

// line is next without the line break at the end. more is false for packets without contents.
func (p *packets) line() (text string, more bool, err error) {
	data, kind, err := p.next()
	return string(bytes.TrimSuffix(data, []byte("\n"))), kind == dataPacket && err == nil, err
}

// cut returns err, and io.ErrUnexpectedEOF instead of io.EOF.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// appendPacket appends a packet with a line.
func appendPacket(b []byte, line string) []byte {
	return fmt.Appendf(b, "%04x%s\n", len(line)+packetHead+1, line)
}

// The bands of a response.
const (
	bandData     = 1
	bandProgress = 2
	bandFatal    = 3
)

// pack reads the first band of packets up to the flush packet.
type pack struct {
	from *packets
	rest []byte
	err  error
}

// Read implements io.Reader.
func (p *pack) Read(b []byte) (int, error) {
	for len(p.rest) == 0 && p.err == nil {
		data, kind, err := p.from.next()
		switch {
		case err != nil:
			p.err = err
		case kind == flushPacket:
			p.err = io.EOF
		case len(data) == 0:
			p.err = errNoPacket
		case data[0] == bandData:
			p.rest = data[1:]
		case data[0] == bandFatal:
			p.err = &remoteError{text: string(data[1:]), fatal: true}
		case data[0] != bandProgress:
			p.err = errNoPacket
		}
	}
	if len(p.rest) == 0 {
		return 0, p.err
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}
