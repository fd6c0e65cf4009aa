package nfstest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv4"
	"github.com/buildbarn/go-xdr/pkg/protocols/rpcv2"
)

// The programs that are served.
const (
	nfsProgram   = 100003
	mountProgram = 100005
)

// Server is one server with any number of connections. Its fields are set before the
// first of them; its methods may be called at any time.
type Server struct {
	// Lease is how long a client may be silent; 0: 60 seconds.
	Lease time.Duration
	// Slots is how many requests at once a session grants; 0: 8.
	Slots int
	// MaxRead and MaxWrite are the most bytes of one READ and WRITE, whatever is asked
	// for; 0: no bound of their own.
	MaxRead, MaxWrite int
	// Only is the one version that is served; 0: both.
	Only uint32
	// ReadOnlyRoot makes the root a place where nothing can be made, as the root of
	// all exports is.
	ReadOnlyRoot bool
	// ReadOnly makes the whole tree a place where nothing can be made.
	ReadOnly bool
	// NoPlus makes version 3 refuse READDIRPLUS, as RFC 1813 allows.
	NoPlus bool
	// List answers READDIR instead of the directory's names. It is told where to go on.
	List func(cookie uint64) nfsv4.Dirlist4

	mu       sync.Mutex // guards all below
	root     *node
	nodes    map[uint64]*node
	lastNode uint64
	verifier [8]byte
	boots    byte
	clients  map[uint64]*client
	sessions map[nfsv4.Sessionid4]*session
	lastID   uint64
	faults   map[uint32][]Fault
	counts   map[uint32]int
	replays  int
	asked    [][]byte // credentials, by request
	conns    map[net.Conn]bool
	trouble  []string
}

// New is a server of an empty tree.
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

// A connection may break before a request is carried out, or after it and before its
// answer.
const (
	NoCut Cut = iota
	CutBefore
	CutAfter
)

// Fault is what goes wrong with a request.
type Fault struct {
	Status nfsv4.Nfsstat4  // is answered by the operation, which is not carried out
	Cut    Cut             // the connection breaks
	Hold   <-chan struct{} // the answer is not sent before this is closed
	Do     func()          // is called first
}

// Refuse are faults of these statuses, one a request.
func Refuse(statuses ...nfsv4.Nfsstat4) []Fault {
	faults := make([]Fault, len(statuses))
	for i, s := range statuses {
		faults[i].Status = s
	}
	return faults
}

// Next scripts faults for the next requests that hold an operation of version 4.1,
// one for each. Those of version 3 go by [Server.Next3].
func (s *Server) Next(op nfsv4.NfsOpnum4, faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[uint32(op)] = append(s.faults[uint32(op)], faults...)
}

// takeLocked is the fault for an operation, if one is scripted.
func (s *Server) takeLocked(op uint32) (f Fault) {
	if queue := s.faults[op]; len(queue) > 0 {
		f, s.faults[op] = queue[0], queue[1:]
	}
	return f
}

// Count is how often an operation of version 4.1 was asked for, replays not counted.
func (s *Server) Count(op nfsv4.NfsOpnum4) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[uint32(op)]
}

// Replays is how many requests were answered from a slot, having been done before.
func (s *Server) Replays() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replays
}

// Trouble is what clients did that no client may do.
func (s *Server) Trouble() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trouble
}

// Credential is the body of the last request's credential.
func (s *Server) Credential() rpcv2.AuthsysParms {
	s.mu.Lock()
	defer s.mu.Unlock()
	var p rpcv2.AuthsysParms
	if len(s.asked) > 0 {
		_, _ = p.ReadFrom(bytes.NewReader(s.asked[len(s.asked)-1])) // a zero value shows that it is malformed
	}
	return p
}

// Dial is a new connection; it is an rpc.Dialer.
func (s *Server) Dial(context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	s.mu.Lock()
	s.conns[far] = true
	s.mu.Unlock()
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

// Serve answers what comes on a connection until that ends.
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
			if fault.Cut != NoCut || answer == nil {
				_ = conn.Close()
				return
			}
			sending.Lock()
			defer sending.Unlock()
			_, _ = conn.Write(answer) // a client that went needs no answer
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

// errArguments makes the caller's arguments be refused.
var errArguments = errors.New("the arguments cannot be decoded")

// answer carries one call out. No answer breaks the connection.
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
