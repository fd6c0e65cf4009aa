package ftp

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// conn is a connection that has logged in. One goroutine uses it at a time.
type conn struct {
	raw     net.Conn
	control net.Conn // raw, or TLS over it
	in      *bufio.Reader
	tls     *tls.Config // of data connections; nil: not encrypted
	home    string      // the directory of the login
	mlsd    bool        // MLSD reports types, sizes and times
	plain   bool        // EPSV is refused, so PASV is sent
	noTimes bool        // MDTM is refused
	dead    bool        // it must not be used again
	lost    bool        // it has failed, so others may have, too
	idle    time.Time   // since when
	stop    func() bool // detaches it from the context of its user
}

// lostError reports that the connection ended.
type lostError struct{ err error }

func (e *lostError) Error() string { return "the connection was lost: " + e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// encrypt starts TLS. Data connections resume its session, of which many servers demand that it is
// that of the control connection.
func (c *conn) encrypt(trust *tls.Config) error {
	c.tls = trust.Clone()
	c.tls.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	over := tls.Client(c.raw, c.tls)
	if err := handshake(over); err != nil {
		return err
	}
	c.control = over
	c.in.Reset(over)
	return nil
}

func handshake(over *tls.Conn) error {
	_ = over.SetDeadline(time.Now().Add(connectWithin)) // the handshake reports the error
	err := over.Handshake()
	_ = over.SetDeadline(time.Time{})
	if record := (tls.RecordHeaderError{}); errors.As(err, &record) {
		return backends.Errorf(backends.Invalid, "open", "", "the server does not respond by TLS: check the port and ?tls= (%w)", err)
	}
	return err
}

// reply reads a reply.
func (c *conn) reply() (reply, error) {
	_ = c.control.SetReadDeadline(time.Now().Add(silence)) // reading reports the error
	r, err := readReply(c.in)
	if err != nil {
		return reply{}, c.fail(err)
	}
	c.dead = c.dead || r.code == codeClosing
	return r, nil
}

// command sends a command and returns its reply, or a replyError unless it has one of the wanted
// codes.
func (c *conn) command(want []int, line string) (reply, error) {
	if strings.ContainsAny(line, "\r\n\x00") {
		return reply{}, errors.New("a command cannot contain line breaks") // it would end there
	}
	_ = c.control.SetWriteDeadline(time.Now().Add(silence)) // writing reports the error
	if _, err := io.WriteString(c.control, line+"\r\n"); err != nil {
		return reply{}, c.fail(err)
	}
	r, err := c.reply()
	switch {
	case err != nil:
		return reply{}, err
	case slices.Contains(want, r.code):
		return r, nil
	case r.code < 300: // it belongs to another command
		return reply{}, c.fail(&replyError{r})
	}
	err = &replyError{r}
	if c.tls == nil && demandsTLS(line, r) {
		err = backends.Errorf(backends.Invalid, "open", "", "the server demands TLS: write ftps:// instead of ftp:// (%w)", err)
	}
	return reply{}, err
}

// fail marks the connection as lost.
func (c *conn) fail(err error) error {
	c.dead, c.lost = true, true
	return &lostError{err}
}

// at returns the path of a key on the server.
func (c *conn) at(key string) string {
	return strings.TrimSuffix(c.home, "/") + "/" + key
}

var (
	extendedForm = regexp.MustCompile(`\(\|\|\|(\d{1,5})\|\)`)
	passiveForm  = regexp.MustCompile(`\d{1,3},\d{1,3},\d{1,3},\d{1,3},(\d{1,3}),(\d{1,3})`)
)

// dataPort asks the server for a port to connect to.
func (c *conn) dataPort() (int, error) {
	if !c.plain {
		r, err := c.command([]int{codeExtended}, "EPSV")
		if err == nil {
			if m := extendedForm.FindStringSubmatch(r.text()); m != nil {
				return strconv.Atoi(m[1])
			}
		} else if !refusesLogin(err) {
			return 0, err
		}
		c.plain = true
	}
	r, err := c.command([]int{codePassive}, "PASV")
	if err != nil {
		return 0, err
	}
	m := passiveForm.FindStringSubmatch(r.text())
	if m == nil {
		return 0, fmt.Errorf("%w: %s", errNoReply, objectstore.OneLine(r.text()))
	}
	high, _ := strconv.Atoi(m[1]) // three digits
	low, _ := strconv.Atoi(m[2])
	return high<<8 | low, nil
}

// data is an open data connection.
type data struct {
	net.Conn
	stop func() bool
}

// transfer sends a command that opens a data connection, after the ones before it. The data
// connection ends with ctx.
func (c *conn) transfer(ctx context.Context, before []string, line string) (*data, error) {
	port, err := c.dataPort()
	if err != nil {
		return nil, err
	}
	// Only the port counts: the address could be that of another machine, or of one behind NAT.
	host, _, err := net.SplitHostPort(c.raw.RemoteAddr().String())
	if err != nil {
		return nil, err
	}
	raw, err := (&net.Dialer{Timeout: connectWithin}).DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		c.dead = true // the server may still wait for a connection
		return nil, fmt.Errorf("cannot open a data connection; a firewall may block the port: %w", err)
	}
	d := &data{Conn: raw, stop: context.AfterFunc(ctx, func() { _ = raw.Close() })}
	if err := c.begin(d, before, line); err != nil {
		_ = d.Close() // nothing was read
		return nil, err
	}
	return d, nil
}

func (c *conn) begin(d *data, before []string, line string) error {
	for _, b := range before {
		if _, err := c.command([]int{350}, b); err != nil {
			return err
		}
	}
	if _, err := c.command([]int{125, codeOpening}, line); err != nil {
		return err
	}
	if c.tls == nil {
		return nil
	}
	over := tls.Client(d.Conn, c.tls)
	if err := handshake(over); err != nil {
		_ = d.Conn.Close()
		if ended := c.ended(); ended != nil && !c.dead {
			err = ended // the server says why
		}
		c.dead = true
		return err
	}
	d.Conn = over
	return nil
}

// ended reads the reply at the end of a transfer.
func (c *conn) ended() error {
	r, err := c.reply()
	if err == nil && r.code != codeDone && r.code != codeCompleted {
		err = &replyError{r}
	}
	return err
}

// Read returns an error if the server sends nothing for too long.
func (d *data) Read(p []byte) (int, error) {
	_ = d.SetReadDeadline(time.Now().Add(silence)) // Read reports the error
	n, err := d.Conn.Read(p)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF // TLS without its end, which some servers do not send; the reply reports success
	}
	return n, err
}

// Close ends the data connection. It may be called more than once.
func (d *data) Close() error {
	d.stop()
	return d.Conn.Close()
}

// shut closes the connection.
func (c *conn) shut() {
	c.dead = true
	_ = c.raw.Close() // nothing was written
}
