package hdfs

import (
	"bufio"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/colinmarc/hdfs/v2"

	"github.com/stager-dev/stager/backends/internal/kerberos"
)

// patience is how long servers may take. The library has no deadlines at all.
type patience struct {
	dial     time.Duration
	namenode time.Duration // owes an answer
	datanode time.Duration // owes a byte
	write    time.Duration // takes a piece, or confirms the last
	idle     time.Duration // a session waits for more work
}

// usual is a silence of the NameNode longer than a pause of its garbage collection and
// shorter than a Store's patience, and one of a DataNode that leaves time to ask
// another within that. Sessions renew their leases every second, whether they have any
// or not, so many idle ones would be a burden on a NameNode.
var usual = patience{dial: 5 * time.Second, namenode: 20 * time.Second, datanode: 12 * time.Second, write: 25 * time.Second, idle: 5 * time.Second}

// sessionLife is how long a session is lent. The library keeps the key that encrypts
// what DataNodes send for as long as its client lives, and the key's own life is ten
// hours unless dfs.block.access.token.lifetime says otherwise.
const sessionLife = time.Hour

// A session is a client of the library and its connections, used by one call or one
// stream at a time. The library serves calls one after the other, keeps its defaults
// and keys without a lock, and after a broken answer takes each later answer for the
// one before: so sessions are not shared, and one that broke is thrown away.
//
// A session is cut by closing its connections, which is how contexts end calls of a
// library that knows none.
type session struct {
	client *hdfs.Client
	namenode
	address string // of the NameNode that was dialled last

	born   time.Time
	ctx    context.Context // ends dials
	cancel context.CancelFunc
	pool   *pool

	broken  atomic.Bool // what the NameNode's connection will say can no longer be trusted
	served  bool        // the NameNode has answered a call
	writing bool        // connections to DataNodes obey the deadlines of the library's writer
	idle    *time.Timer

	mu    sync.Mutex // guards conns and address
	conns map[*conn]struct{}
}

// cut ends whatever the session does, from another goroutine.
func (s *session) cut() {
	s.broken.Store(true)
	s.cancel()
	s.hangUp(true)
}

// hangUp closes the connections to DataNodes, of which the library forgets some, or
// all of them.
func (s *session) hangUp(all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if all || !c.namenode {
			_ = c.Conn.Close() // nobody reads it further
			delete(s.conns, c)
		}
	}
}

// end throws the session away.
func (s *session) end() {
	s.cut()
	if s.client != nil {
		_ = s.client.Close() // its connections are closed
	}
}

// dial connects to a NameNode or a DataNode.
func (s *session) dial(namenode bool) func(context.Context, string, string) (net.Conn, error) {
	return func(_ context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(s.ctx, s.pool.patience.dial)
		defer cancel()
		raw, err := s.pool.net(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: raw, session: s, namenode: namenode}
		switch {
		case namenode:
			c.silence = s.pool.patience.namenode
		case !s.writing:
			c.silence = s.pool.patience.datanode
		}
		size := 4 << 10
		if !namenode {
			size = 64 << 10 // blocks are read in small pieces, too
		}
		c.buffered = bufio.NewReaderSize(readerFunc(c.read), size)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.ctx.Err() != nil {
			_ = raw.Close() // cut meanwhile
			return nil, s.ctx.Err()
		}
		s.conns[c] = struct{}{}
		if namenode {
			s.address = address
		}
		return c, nil
	}
}

// conn is a connection with a deadline that rolls on with each byte, so that silence
// ends it and a long transfer does not.
type conn struct {
	net.Conn
	session  *session
	namenode bool
	silence  time.Duration // 0: the library sets the deadline
	buffered *bufio.Reader // headers and checksums come in pieces of a few bytes
	begun    bool          // a byte was read
	private  bool          // the DataNode's next message tells how it encrypts
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// errWebPort is told of a server that speaks HTTP. The library would take its greeting
// for the length of an answer, of a gigabyte, and make room for it.
var errWebPort = errors.New("this is a web port; the NameNode's RPC port is wanted, which is mostly 8020 or 9000")

func (c *conn) Read(p []byte) (int, error) {
	if c.namenode && !c.begun {
		greeting, err := c.buffered.Peek(4)
		if err == nil && string(greeting) == "HTTP" {
			c.session.broken.Store(true)
			return 0, errWebPort
		}
		c.begun = err == nil
	}
	if c.private {
		c.private = false
		if aes, err := c.byAES(); err == nil && !aes {
			return 0, errDigestCipher
		}
	}
	return c.buffered.Read(p)
}

func (c *conn) read(p []byte) (int, error) {
	if c.silence > 0 {
		_ = c.Conn.SetReadDeadline(time.Now().Add(c.silence)) // a closed one says so in Read
	}
	n, err := c.Conn.Read(p)
	if err != nil && c.namenode {
		c.session.broken.Store(true)
	}
	return n, err
}

func (c *conn) Write(p []byte) (int, error) {
	if !c.namenode && !c.session.writing {
		if err := c.watch(p); err != nil {
			return 0, err
		}
	}
	if c.silence > 0 {
		_ = c.Conn.SetWriteDeadline(time.Now().Add(c.silence)) // a closed one says so in Write
	}
	n, err := c.Conn.Write(p)
	if err != nil && c.namenode {
		c.session.broken.Store(true)
	}
	return n, err
}

// SetDeadline is the library's, which clears deadlines that it did not set.
func (c *conn) SetDeadline(t time.Time) error {
	if c.silence > 0 {
		return nil
	}
	return c.Conn.SetDeadline(t)
}

func (c *conn) Close() error {
	c.session.mu.Lock()
	delete(c.session.conns, c)
	c.session.mu.Unlock()
	return c.Conn.Close()
}

// A pool lends sessions.
type pool struct {
	options  hdfs.ClientOptions // but for the addresses and the dial functions
	login    *kerberos.Login    // nil: no Kerberos
	net      func(ctx context.Context, network, address string) (net.Conn, error)
	patience patience

	mu        sync.Mutex // guards all below
	addresses []string   // of the NameNodes, the one first that answered last
	idle      []*session
	closed    bool
}

// get is a session that nobody uses, or a new one.
func (p *pool) get(ctx context.Context) (*session, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	for {
		p.mu.Lock()
		n := len(p.idle)
		if n == 0 {
			p.mu.Unlock()
			return p.dial(ctx)
		}
		s := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		s.idle.Stop()
		if !s.broken.Load() {
			return s, nil
		}
		s.end()
	}
}

// dial makes a session. The library takes no context for it, nor does Kerberos, so
// both are left behind in a goroutine when the context ends; they end by themselves.
func (p *pool) dial(ctx context.Context) (*session, error) {
	s := &session{pool: p, born: time.Now(), conns: make(map[*conn]struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	opts := p.options
	p.mu.Lock()
	opts.Addresses = slices.Clone(p.addresses)
	p.mu.Unlock()
	opts.NamenodeDialFunc, opts.DatanodeDialFunc = s.dial(true), s.dial(false)
	done := make(chan error, 1)
	go func() {
		var err error
		if p.login != nil {
			opts.KerberosClient, err = p.login.Client()
		}
		if err == nil {
			s.client, err = hdfs.NewClient(opts)
		}
		if err == nil {
			s.namenode, err = namenodeOf(s.client)
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			if p.login != nil {
				p.login.Forget()
			}
			p.blame(s)
			s.end()
			return nil, err
		}
		return s, nil
	case <-ctx.Done():
		s.cut()
		go func() {
			<-done //nolint:errcheck // it was cut
			s.end()
		}()
		return nil, context.Cause(ctx)
	}
}

// put takes a session back, or ends it if it is broken.
func (p *pool) put(s *session) {
	s.writing = false
	s.hangUp(false)
	if s.broken.Load() {
		p.blame(s)
		s.end()
		return
	}
	if time.Since(s.born) > sessionLife {
		s.end()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		go s.end()
		return
	}
	s.mu.Lock()
	address := s.address
	s.mu.Unlock()
	p.prefer(address)
	s.idle = time.AfterFunc(p.patience.idle, func() { p.retire(s) })
	p.idle = append(p.idle, s)
}

// prefer has the next session ask this NameNode first. p.mu is held.
func (p *pool) prefer(address string) {
	if i := slices.Index(p.addresses, address); i > 0 {
		p.addresses = append([]string{address}, slices.Delete(slices.Clone(p.addresses), i, i+1)...)
	}
}

// retire ends a session that nobody has taken.
func (p *pool) retire(s *session) {
	p.mu.Lock()
	i := slices.Index(p.idle, s)
	if i >= 0 {
		p.idle = slices.Delete(p.idle, i, i+1)
	}
	p.mu.Unlock()
	if i >= 0 {
		s.end()
	}
}

// blame has the next session ask another NameNode first, and ends those that wait:
// what broke this one has mostly broken them, and each would cost a try.
func (p *pool) blame(s *session) {
	s.mu.Lock()
	address := s.address
	s.mu.Unlock()
	p.mu.Lock()
	if i := slices.Index(p.addresses, address); i >= 0 && s.ctx.Err() == nil {
		p.addresses = append(slices.Delete(slices.Clone(p.addresses), i, i+1), address)
	}
	var waiting []*session
	if s.ctx.Err() == nil {
		waiting, p.idle = p.idle, nil
	}
	p.mu.Unlock()
	for _, w := range waiting {
		w.idle.Stop()
		w.end()
	}
}

// close ends the sessions that wait; those in use end when they come back.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	waiting := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, s := range waiting {
		s.idle.Stop()
		s.end()
	}
}
