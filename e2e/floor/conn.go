package floor

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strconv"
)

// conn is a connection with one request at a time.
type conn struct {
	net.Conn

	in   *bufio.Reader
	host string
	head []byte // of the request, reused
	buf  []byte // for bodies
}

// dial connects to the server of a URL. config is for https.
func dial(server *url.URL, config *tls.Config, buf []byte) (*conn, error) {
	c, err := net.Dial("tcp", server.Host) //nolint:noctx // the process ends with its parent
	if err != nil {
		return nil, err
	}
	if server.Scheme == "https" {
		c = tls.Client(c, config)
	}
	return &conn{Conn: c, in: bufio.NewReaderSize(c, 8<<10), host: server.Host, buf: buf}, nil
}

// begin starts a request in c.head. The caller may add lines, and sends it with send.
func (c *conn) begin(method, path string) {
	c.head = append(append(append(append(c.head[:0], method...), ' '), path...), " HTTP/1.1\r\nHost: "...)
	c.head = append(append(c.head, c.host...), "\r\n"...)
}

func (c *conn) add(name string, n int64) {
	c.head = append(strconv.AppendInt(append(append(c.head, name...), ": "...), n, 10), "\r\n"...)
}

// send sends the head of a request, and with it a body that is in memory.
func (c *conn) send(body []byte) error {
	c.head = append(append(c.head, "\r\n"...), body...)
	_, err := c.Write(c.head)
	return err
}

// answer reads the head of an answer, and returns the length of its body.
func (c *conn) answer() (length int64, err error) {
	first := true
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case first && !bytes.HasPrefix(line, []byte("HTTP/1.1 2")):
			return 0, fmt.Errorf("the server answered %q", line)
		case len(line) == 0:
			return length, nil
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64); err != nil {
				return 0, err
			}
		}
		first = false
	}
}

// body reads the head and the body of an answer that is short.
func (c *conn) body() ([]byte, error) {
	n, err := c.answer()
	if err == nil && n > int64(len(c.buf)) {
		err = fmt.Errorf("the server answered %d bytes, which are more than %d", n, len(c.buf))
	}
	if err != nil {
		return nil, err
	}
	_, err = io.ReadFull(c.in, c.buf[:n])
	return c.buf[:n], err
}

// sendFile sends a part of a file: by sendfile, or through c.buf with TLS.
func (c *conn) sendFile(file *os.File, from, size int64) error {
	part := io.NewSectionReader(file, from, size)
	if _, ok := c.Conn.(*tls.Conn); ok {
		_, err := io.CopyBuffer(struct{ io.Writer }{c.Conn}, struct{ io.Reader }{part}, c.buf)
		return err
	}
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		return err
	}
	n, err := io.Copy(c.Conn, io.LimitReader(file, size))
	if err == nil && n < size {
		err = errors.New("the file is too short")
	}
	return err
}
