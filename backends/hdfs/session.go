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
	krb "github.com/jcmturner/gokrb5/v8/client"

	"github.com/stager-dev/stager/backends/hdfs/internal/rpc"
	"github.com/stager-dev/stager/backends/internal/kerberos"
)

// patience holds the timeouts, since the library has none.
type patience struct {
	dial     time.Duration
	namenode time.Duration // to respond
	datanode time.Duration // to send a byte
	write    time.Duration // to accept a piece, or to confirm the last one
	idle     time.Duration // before an unused session is closed
}

// usual holds the default timeouts. That of the NameNode is longer than a pause of its garbage
// collection and shorter than the patience of a Store. That of a DataNode leaves time to try
// another one. Idle sessions are closed soon: the library renews its lease every second,
// whether it has one or not, which loads the NameNode.
var usual = patience{dial: 5 * time.Second, namenode: 20 * time.Second, datanode: 12 * time.Second, write: 25 * time.Second, idle: 5 * time.Second}

// sessionLife is the maximum age of a reused session. The library keeps the key for encrypted
// DataNode transfers as long as its client lives. The key itself expires after ten hours unless
// dfs.block.access.token.lifetime says otherwise.
const sessionLife = time.Hour

// session is a connection to a NameNode, and a client of the library with its own connections. One
// call or one stream uses it at a time. The library runs calls one after another and keeps its
// defaults and keys without a lock. After a broken response it takes each later response for the
// previous one. Sessions are therefore not shared, and a broken one is discarded.
//
// Cutting a session closes its connections. That is how a context ends a call of the library, which
// does not support contexts.
type session struct {
	*namenode
	client  *hdfs.Client // nil until library is called
	address string       // last dialled NameNode

	born   time.Time
	ctx    context.Context // cancels dials
	cancel context.CancelFunc
	pool   *pool

	broken  atomic.Bool // responses of the NameNode can no longer be trusted
	writing bool        // connections to DataNodes use the deadlines of the library's writer
	idle    *time.Timer

	mu    sync.Mutex // guards conns and address
	conns map[*conn]struct{}
}

// cut aborts the session. It may be called from another goroutine.
func (s *session) cut() {
	s.broken.Store(true)
	s.cancel()
	s.hangUp(true)
}

// hangUp closes the connections to DataNodes, or all connections if all is true. The library leaves
// some of them open.
func (s *session) hangUp(all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if all || !c.namenode {
			_ = c.Conn.Close() // no longer read
			delete(s.conns, c)
		}
	}
}

// end closes the session for good.
func (s *session) end() {
	s.cut()
	if s.client != nil {
		_ = s.client.Close() // its connections are closed already
	}
}

// logIn returns a Kerberos client with a valid ticket; nil without Kerberos. It may send requests.
// A client may end a minute later, and is therefore not kept.
func (s *session) logIn() (*krb.Client, error) {
	if s.pool.login == nil {
		return nil, nil
	}
	return s.pool.login.Client()
}

// forget makes the next login read the credentials again.
func (s *session) forget() {
	if s.pool.login != nil {
		s.pool.login.Forget()
	}
}

// connect connects to a NameNode.
func (s *session) connect(address string) (*rpc.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	kerberos, err := s.logIn()
	if err != nil {
		return nil, err
	}
	raw, err := s.dial(true)(s.ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	conn, err := rpc.Connect(raw, rpc.Config{
		User: s.pool.options.User, Kerberos: kerberos, Principal: s.pool.options.KerberosServicePrincipleName, Host: host,
	})
	if err != nil {
		_ = raw.Close() // the first error is more precise
		return nil, err
	}
	return conn, nil
}

// library returns the client of the library, which reads and writes data. It has a connection of
// its own, to the NameNode that responded last if that is active.
func (s *session) library() (*hdfs.Client, error) {
	if s.client != nil {
		return s.client, nil
	}
	kerberos, err := s.logIn()
	if err != nil {
		return nil, err
	}
	opts := s.pool.options
	opts.Addresses = slices.Concat(s.addresses[s.at:], s.addresses[:s.at])
	opts.KerberosClient = kerberos
	opts.NamenodeDialFunc, opts.DatanodeDialFunc = s.dial(true), s.dial(false)
	client, err := hdfs.NewClient(opts)
	if err != nil {
		s.forget()
		return nil, err
	}
	s.client = client
	return client, nil
}

// dial returns a function that connects to a NameNode or a DataNode.
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
			size = 64 << 10 // the library also reads blocks in small pieces
		}
		c.buffered = bufio.NewReaderSize(readerFunc(c.read), size)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.ctx.Err() != nil {
			_ = raw.Close() // the session was cut meanwhile
			return nil, s.ctx.Err()
		}
		s.conns[c] = struct{}{}
		if namenode {
			s.address = address
		}
		return c, nil
	}
}

// conn is a connection whose deadline moves with each byte. Silence ends it; a long transfer does
// not.
type conn struct {
	net.Conn
	session  *session
	namenode bool
	silence  time.Duration // 0: the library sets deadlines
	buffered *bufio.Reader // headers and checksums arrive in pieces of a few bytes
	begun    bool          // a byte was read
	private  bool          // the next message of the DataNode selects the cipher
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// errWebPort reports a server that speaks HTTP. The library would read its greeting as the length
// of a response, about a gigabyte, and allocate that much.
var errWebPort = errors.New("this is a web port; use the NameNode's RPC port, usually 8020 or 9000")

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
		_ = c.Conn.SetReadDeadline(time.Now().Add(c.silence)) // Read reports a closed connection
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
		_ = c.Conn.SetWriteDeadline(time.Now().Add(c.silence)) // Write reports a closed connection
	}
	n, err := c.Conn.Write(p)
	if err != nil && c.namenode {
		c.session.broken.Store(true)
	}
	return n, err
}

// SetDeadline is called by the library. It is ignored if conn sets deadlines itself, because the
// library clears them.
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

// pool holds idle sessions.
type pool struct {
	options  hdfs.ClientOptions // without addresses and dial functions
	login    *kerberos.Login    // nil: no Kerberos
	net      func(ctx context.Context, network, address string) (net.Conn, error)
	patience patience

	mu        sync.Mutex // guards the fields below
	addresses []string   // NameNodes, last responder first
	idle      []*session
	closed    bool
}

// get returns an idle session or a new one.
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

// dial opens a session. Kerberos does not support a context. If ctx ends, the login finishes in a
// background goroutine.
func (p *pool) dial(ctx context.Context) (*session, error) {
	s := &session{pool: p, born: time.Now(), conns: make(map[*conn]struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	p.mu.Lock()
	s.namenode = &namenode{addresses: slices.Clone(p.addresses), connect: s.connect}
	p.mu.Unlock()
	done := make(chan error, 1)
	go func() { done <- s.open() }()
	select {
	case err := <-done:
		if err != nil {
			s.forget()
			p.blame(s)
			s.end()
			return nil, err
		}
		return s, nil
	case <-ctx.Done():
		s.cut()
		go func() {
			<-done //nolint:errcheck // the session was cut
			s.end()
		}()
		return nil, context.Cause(ctx)
	}
}

// put returns a session to the pool, or closes it if it is broken or too old.
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

// prefer moves a NameNode to the front of the list. The caller holds p.mu.
func (p *pool) prefer(address string) {
	if i := slices.Index(p.addresses, address); i > 0 {
		p.addresses = append([]string{address}, slices.Delete(slices.Clone(p.addresses), i, i+1)...)
	}
}

// retire closes a session that is still idle.
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

// blame moves the NameNode of a failed session to the end of the list, and closes the idle
// sessions: the same failure has usually broken them, and each would cost an attempt.
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

// close closes the idle sessions. Sessions in use are closed when they are returned.
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
