package servers

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
)

// NoPlus is an NFS server of version 3 without READDIRPLUS, as RFC 1813 allows and unfs3 is:
// NFS-Ganesha behind a proxy that answers this one call with NFS3ERR_NOTSUPP.
type NoPlus struct {
	*Ganesha // whose Address is that of the proxy

	server   string // where Ganesha itself listens
	listener net.Listener
}

// The call that is not there, of RFC 5531 and RFC 1813.
const (
	nfsProgram  = 100003
	nfsVersion3 = 3
	readdirPlus = 17
	notSupp     = 10004
)

// StartNoPlus starts NFS-Ganesha and the proxy.
func StartNoPlus(ctx context.Context, opts GaneshaOptions) (*NoPlus, error) {
	g, err := StartGanesha(ctx, opts)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", localhost+":0")
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	n := &NoPlus{Ganesha: g, server: g.Address, listener: listener}
	g.Address = listener.Addr().String()
	go n.accept()
	return n, nil
}

// Close ends the proxy and the server.
func (n *NoPlus) Close() error { return errors.Join(n.listener.Close(), n.Ganesha.Close()) }

func (n *NoPlus) accept() {
	for {
		client, err := n.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", n.server)
		if err != nil {
			_ = client.Close() // the server is away
			continue
		}
		p := &noPlusConn{client: client, server: server}
		go p.calls()
		go p.replies()
	}
}

// noPlusConn is a connection through the proxy. Either end closes both.
type noPlusConn struct {
	client, server net.Conn
	reply          sync.Mutex // for writing a whole reply to the client
}

func (p *noPlusConn) close() {
	_ = p.client.Close() // the other end sees that
	_ = p.server.Close()
}

// calls passes calls on, and answers those of READDIRPLUS.
func (p *noPlusConn) calls() {
	defer p.close()
	for {
		call, err := readRecord(p.client)
		if err != nil {
			return
		}
		if isReaddirPlus(call[4:]) {
			err = p.answer(noPlusReply(call[4:8]))
		} else {
			_, err = p.server.Write(call)
		}
		if err != nil {
			return
		}
	}
}

func (p *noPlusConn) replies() {
	defer p.close()
	for {
		reply, err := readRecord(p.server)
		if err != nil || p.answer(reply) != nil {
			return
		}
	}
}

func (p *noPlusConn) answer(reply []byte) error {
	p.reply.Lock()
	defer p.reply.Unlock()
	_, err := p.client.Write(reply)
	return err
}

// readRecord reads a fragment with its mark. A message of stager and of Ganesha is one.
func readRecord(from io.Reader) ([]byte, error) {
	var mark [4]byte
	if _, err := io.ReadFull(from, mark[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(mark[:]) &^ (1 << 31)
	if n > 16<<20 {
		return nil, errors.New("a record is too long")
	}
	record := append(mark[:], make([]byte, n)...)
	_, err := io.ReadFull(from, record[4:])
	return record, err
}

// isReaddirPlus looks at the head of a call: xid, CALL, RPC 2, program, version, procedure.
func isReaddirPlus(call []byte) bool {
	words := xdrWords(call)
	words.next()
	kind := words.next()
	words.next()
	return len(call) >= 24 && kind == 0 && words.next() == nfsProgram && words.next() == nfsVersion3 && words.next() == readdirPlus
}

// noPlusReply is an accepted reply with the status NFS3ERR_NOTSUPP and no attributes.
func noPlusReply(xid []byte) []byte {
	reply := append([]byte{0x80, 0, 0, 32}, xid...)
	for _, v := range []uint32{1, 0, 0, 0, 0, notSupp, 0} {
		reply = binary.BigEndian.AppendUint32(reply, v)
	}
	return reply
}
