package servers

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/xml"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// Of a small file's way to a client net/http's server is the larger part. A Quick has only
// its requests read by it, and writes head and body of an answer at once.

// accept serves connections until Close.
func (q *Quick) accept() {
	for {
		conn, err := q.listener.Accept()
		if err != nil {
			return
		}
		q.mu.Lock()
		q.conns[conn] = true
		over := q.over
		q.mu.Unlock()
		if over {
			conn.Close() //nolint:errcheck // the client sees that it is over
			return
		}
		go q.converse(conn)
	}
}

// converse answers the requests of a connection, one after the other.
func (q *Quick) converse(conn net.Conn) {
	defer func() {
		conn.Close() //nolint:errcheck // nothing is expected of it
		q.mu.Lock()
		delete(q.conns, conn)
		q.mu.Unlock()
	}()
	in := bufio.NewReader(conn)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body := &quickBody{r.Body, conn, strings.EqualFold(r.Header.Get("Expect"), "100-continue")}
		r.Body = body
		a := quickAnswer{status: http.StatusOK}
		q.answer(&a, r)
		if a.send(conn, r.Method != http.MethodHead) != nil || r.Close || body.waits {
			return
		}
		if _, err := io.Copy(io.Discard, body.ReadCloser); err != nil { // what nobody wanted of it
			return
		}
	}
}

// quickBody is that of a request. Where the client waits to be asked for it, its first
// reader does.
type quickBody struct {
	io.ReadCloser

	conn  net.Conn
	waits bool
}

func (b *quickBody) Read(p []byte) (int, error) {
	if b.waits {
		b.waits = false
		if _, err := io.WriteString(b.conn, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return 0, err
		}
	}
	return b.ReadCloser.Read(p)
}

// quickAnswer is what will be sent.
type quickAnswer struct {
	status   int
	head     []byte // its lines, but for those that all have
	text     []byte // the body, if it is not of a file:
	file     quickFile
	from, to int64 // what of it
}

func (a *quickAnswer) xml(v any) {
	text, err := xml.Marshal(v)
	if err != nil {
		a.refuse(http.StatusInternalServerError, "InternalError")
		return
	}
	a.head, a.text = append(a.head, "Content-Type: application/xml\r\n"...), append([]byte(xml.Header), text...)
}

// refuse makes it the answer of an error.
func (a *quickAnswer) refuse(status int, code string) {
	*a = quickAnswer{
		status: status, head: []byte("Content-Type: application/xml\r\n"),
		text: fmt.Appendf(nil, "%s<Error><Code>%s</Code><Message>%s</Message></Error>", xml.Header, code, code),
	}
}

// send sends it, without its body in answer to HEAD.
func (a *quickAnswer) send(conn net.Conn, all bool) error {
	out := make([]byte, 0, 512)
	out = strconv.AppendInt(append(out, "HTTP/1.1 "...), int64(a.status), 10)
	out = append(append(out, ' '), http.StatusText(a.status)...)
	out = time.Now().UTC().AppendFormat(append(out, "\r\nDate: "...), http.TimeFormat)
	if a.status != http.StatusNoContent {
		out = strconv.AppendInt(append(out, "\r\nContent-Length: "...), int64(len(a.text))+a.to-a.from, 10)
	}
	out = append(append(append(out, "\r\n"...), a.head...), "\r\n"...)
	parts := net.Buffers{out}
	if all {
		parts = append(parts, a.text)
		begin := int64(0)
		for _, p := range a.file.pieces {
			from, to := max(a.from-begin, 0), min(a.to-begin, p.size)
			begin += p.size
			switch {
			case from >= to:
			case p.kept != nil:
				parts = append(parts, p.kept[from:to])
			default:
				if err := sendParts(conn, &parts); err != nil {
					return err
				}
				if err := p.send(conn, from, to); err != nil {
					return err // the client sees that it is cut
				}
			}
		}
	}
	return sendParts(conn, &parts)
}

// sendParts sends all parts, of which none is left, at once. A TLS connection takes them as one, since each
// would be a record of its own.
func sendParts(conn net.Conn, parts *net.Buffers) error {
	if _, ok := conn.(*tls.Conn); ok {
		*parts = net.Buffers{bytes.Join(*parts, nil)}
	}
	_, err := parts.WriteTo(conn)
	return err
}

// tlsChunk is what is encrypted at once of a file.
const tlsChunk = 256 << 10

func (p quickPiece) send(conn net.Conn, from, to int64) error {
	f, err := os.Open(p.path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return err
	}
	if _, ok := conn.(*tls.Conn); ok {
		_, err = io.CopyBuffer(struct{ io.Writer }{conn}, struct{ io.Reader }{io.LimitReader(f, to-from)}, make([]byte, tlsChunk))
		return err
	}
	_, err = io.CopyN(conn, f, to-from)
	return err
}
