package nfstest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv4"
	"github.com/buildbarn/go-xdr/pkg/protocols/rpcv2"
)

// Program numbers.
const (
	nfsProgram   = 100003
	mountProgram = 100005
)

// Server is a server with any number of connections. Set its fields before the first connection.
// Its methods are safe for concurrent use.
type Server struct {
	// Lease is how long a client may be silent. 0 means 60 seconds.
	Lease time.Duration
	// Slots is the number of concurrent requests of a session. 0 means 8.
	Slots int
	// MaxRead and MaxWrite limit the bytes of one READ and WRITE, whatever the client requests. 0
	// means no limit.
	MaxRead, MaxWrite int
	// Only restricts the server to one version. 0 means both.
	Only uint32
	// ReadOnlyRoot makes the root read-only, like that above all exports.
	ReadOnlyRoot bool
	// ReadOnly makes the whole tree read-only.
	ReadOnly bool
	// NoPlus makes version 3 reject READDIRPLUS, as RFC 1813 allows.
	NoPlus bool
	// Each returns a fault for the n-th request, from 1, if none is scripted for it. It may be nil.
	Each func(n int) Fault
	// EachOp returns a fault for the n-th operation of version 4.1, or procedure of version 3, from 1,
	// if none is scripted for its request. It may be nil.
	EachOp func(n int) Fault
	// List replaces the response to READDIR. Its argument is the cookie of the request.
	List func(cookie uint64) nfsv4.Dirlist4

	mu         sync.Mutex // guards the fields below
	root       *node
	nodes      map[uint64]*node
	lastNode   uint64
	verifier   [8]byte
	boots      byte
	clients    map[uint64]*client
	sessions   map[nfsv4.Sessionid4]*session
	lastID     uint64
	faults     map[uint32][]Fault
	counts     map[uint32]int
	requests   int
	operations int
	replays    int
	asked      [][]byte // credentials, by request
	conns      map[net.Conn]bool
	back       time.Time // when it takes connections again
	trouble    []string
}

// New returns a server with an empty tree.
func New() *Server {
	s := &Server{
		nodes: make(map[uint64]*node), clients: make(map[uint64]*client), sessions: make(map[nfsv4.Sessionid4]*session),
		faults: make(map[uint32][]Fault), counts: make(map[uint32]int), conns: make(map[net.Conn]bool),
	}
	s.root = s.newNodeLocked(directory)
	s.root.links = 1
	return s
}

// Cut says when a connection breaks.
type Cut int

// A connection may break before a request is executed, or after it and before its response.
const (
	NoCut Cut = iota
	CutBefore
	CutAfter
)

// Fault is a scripted failure of a request.
type Fault struct {
	Status nfsv4.Nfsstat4  // returned by the operation instead of executing it
	Cut    Cut             // the connection breaks
	Hold   <-chan struct{} // delays the response until closed
	Do     func()          // called first
	Then   func()          // called when the request is executed, before the response
}

// Refuse returns one fault per status, each for one request.
func Refuse(statuses ...nfsv4.Nfsstat4) []Fault {
	faults := make([]Fault, len(statuses))
	for i, s := range statuses {
		faults[i].Status = s
	}
	return faults
}

// Next scripts faults for the next requests with an operation of version 4.1, one fault per
// request. For version 3 use [Server.Next3].
func (s *Server) Next(op nfsv4.NfsOpnum4, faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[uint32(op)] = append(s.faults[uint32(op)], faults...)
}

// takeLocked returns the fault for a request with these operations, and the index of the operation
// that it was scripted for, or -1.
func (s *Server) takeLocked(ops ...uint32) (f Fault, at int) {
	s.requests++
	for i, op := range ops {
		if queue := s.faults[op]; len(queue) > 0 {
			f, s.faults[op] = queue[0], queue[1:]
			return f, i
		}
	}
	for i := range ops {
		if s.EachOp == nil {
			break
		}
		s.operations++
		if f = s.EachOp(s.operations); f.Status != nfsv4.NFS4_OK {
			return f, i
		}
	}
	if s.Each != nil {
		f = s.Each(s.requests)
	}
	return f, -1
}

// Requests returns how many requests of both versions there were.
func (s *Server) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

// Count returns how often an operation of version 4.1 was requested, without replays.
func (s *Server) Count(op nfsv4.NfsOpnum4) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[uint32(op)]
}

// Replays returns how many repeated requests were served from the cache of a slot.
func (s *Server) Replays() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replays
}

// Trouble returns the protocol violations of clients.
func (s *Server) Trouble() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trouble
}

// Credential returns the body of the credential in the last request.
func (s *Server) Credential() rpcv2.AuthsysParms {
	s.mu.Lock()
	defer s.mu.Unlock()
	var p rpcv2.AuthsysParms
	if len(s.asked) > 0 {
		_, _ = p.ReadFrom(bytes.NewReader(s.asked[len(s.asked)-1])) // a zero value shows that it is malformed
	}
	return p
}

// Dial returns a new connection. It is an rpc.Dialer.
func (s *Server) Dial(context.Context) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.back) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	near, far := net.Pipe()
	s.conns[far] = true
	go s.Serve(far)
	return near, nil
}

// CutAll breaks all connections.
func (s *Server) CutAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
}

// Serve handles requests on a connection until it ends.
func (s *Server) Serve(conn net.Conn) {
	var (
		requests sync.WaitGroup
		sending  sync.Mutex
	)
	for {
		record, err := readRecord(conn)
		if err != nil {
			break
		}
		requests.Go(func() {
			answer, fault := s.answer(record)
			if fault.Hold != nil {
				<-fault.Hold
			}
			if fault.Then != nil {
				fault.Then()
			}
			if fault.Cut != NoCut || answer == nil {
				_ = conn.Close()
				return
			}
			sending.Lock()
			defer sending.Unlock()
			_, _ = conn.Write(answer) // the client may have left
		})
	}
	_ = conn.Close()
	requests.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
}

func readRecord(conn io.Reader) (record []byte, err error) {
	for {
		var mark [4]byte
		if _, err := io.ReadFull(conn, mark[:]); err != nil {
			return nil, err
		}
		word := binary.BigEndian.Uint32(mark[:])
		part := make([]byte, word&^(1<<31))
		if _, err := io.ReadFull(conn, part); err != nil {
			return nil, err
		}
		record = append(record, part...)
		if word>>31 == 1 {
			return record, nil
		}
	}
}

// errArguments makes the server reject the arguments of a call.
var errArguments = errors.New("the arguments cannot be decoded")

// answer executes one call. A nil response breaks the connection.
func (s *Server) answer(record []byte) (answer []byte, fault Fault) {
	in := bytes.NewReader(record)
	var msg rpcv2.RpcMsg
	if _, err := msg.ReadFrom(in); err != nil {
		return nil, Fault{}
	}
	call, ok := msg.Body.(*rpcv2.RpcMsgBody_CALL)
	if !ok {
		return nil, Fault{}
	}
	c := call.Cbody
	s.mu.Lock()
	s.asked = append(s.asked, c.Cred.Body)
	s.mu.Unlock()

	var body bytes.Buffer
	stat := uint32(0)
	var extra []byte
	served := func(version uint32) bool { return c.Vers == version && (s.Only == 0 || s.Only == version) }
	var err error
	switch {
	case c.Prog == nfsProgram && served(4):
		fault, err = s.compound(in, &body)
	case c.Prog == nfsProgram && served(3):
		fault, err = s.version3(c.Proc, in, &body)
	case c.Prog == mountProgram && served(3):
		err = s.mount(c.Proc, in, &body)
	case c.Prog == nfsProgram || c.Prog == mountProgram:
		only := max(s.Only, 3)
		stat, extra = 2, words(only, only)
	default:
		stat = 1
	}
	if err != nil {
		stat = 4
		body.Reset()
	}
	out := words(0, msg.Xid, 1, 0, 0, 0, stat) // the first is the record mark
	out = append(append(out, extra...), body.Bytes()...)
	binary.BigEndian.PutUint32(out, uint32(len(out)-4)|1<<31)
	return out, fault
}
