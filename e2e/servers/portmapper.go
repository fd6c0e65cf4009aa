package servers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// portMapper is the part of rpcbind without which an NFS server of version 3 does not
// start: it takes registrations on the socket of this machine, and answers on
// 127.0.0.1:111, if that is free, which port a program has. Debian's own listens on all
// addresses, and crashes when it is told not to.
type portMapper struct {
	listeners []net.Listener

	mu    sync.Mutex            // guards all below
	ports map[[2]uint32]uint32  // by program and version, over TCP
	conns map[net.Conn]struct{} //
	over  bool                  //
}

const rpcbindSocket = "/run/rpcbind.sock"

// lockPortMapper waits until no other test, of this process or another one, starts a server that
// registers, or ends its port mapper: a server ends at once if the mapper that it found is gone.
func lockPortMapper() (unlock func() error, err error) {
	lock, err := os.OpenFile(rpcbindSocket+".stager-tests", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock.Close, nil // which unlocks it
}

// startPortMapper returns a mapper that does nothing when there is one already. The caller has locked
// it, and keeps the lock until its server has registered.
func startPortMapper() (*portMapper, error) {
	m := &portMapper{ports: make(map[[2]uint32]uint32), conns: make(map[net.Conn]struct{})}
	if conn, err := net.Dial("unix", rpcbindSocket); err == nil {
		return m, conn.Close()
	}
	_ = os.Remove(rpcbindSocket) // left by one that was killed
	local, err := net.Listen("unix", rpcbindSocket)
	if err != nil {
		return nil, fmt.Errorf("the port mapper's socket: %w", err)
	}
	m.listeners = append(m.listeners, local)
	if l, err := net.Listen("tcp", "127.0.0.1:111"); err == nil {
		m.listeners = append(m.listeners, l)
	}
	for _, l := range m.listeners {
		go m.accept(l)
	}
	return m, nil
}

// close ends the mapper, once no server of another test is about to register with it.
func (m *portMapper) close() (err error) {
	if len(m.listeners) == 0 {
		return nil
	}
	unlock, err := lockPortMapper()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	var errs []error
	for _, l := range m.listeners {
		errs = append(errs, l.Close())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.over = true
	for c := range m.conns {
		_ = c.Close() // nobody asks any more
	}
	return errors.Join(errs...)
}

func (m *portMapper) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		m.mu.Lock()
		if m.over {
			_ = conn.Close() // too late
		}
		m.conns[conn] = struct{}{}
		m.mu.Unlock()
		go func() {
			defer func() {
				_ = conn.Close() // all that matters was sent
				m.mu.Lock()
				defer m.mu.Unlock()
				delete(m.conns, conn)
			}()
			for m.answer(conn) == nil {
			}
		}()
	}
}

// answer reads one call and answers it. Calls are one fragment, and short.
func (m *portMapper) answer(conn net.Conn) error {
	var mark [4]byte
	if _, err := io.ReadFull(conn, mark[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(mark[:]) &^ (1 << 31)
	if n > 4096 {
		return errors.New("a call is too long")
	}
	call := xdrWords(make([]byte, n))
	if _, err := io.ReadFull(conn, call); err != nil {
		return err
	}
	xid := call.next()
	for range 3 { // a call, of RPC 2, to the mapper
		call.next()
	}
	version, procedure := call.next(), call.next()
	for range 2 { // credential and verifier
		call.next()
		call.text()
	}
	result := m.result(version, procedure, &call)
	answer := binary.BigEndian.AppendUint32(nil, uint32(24+len(result))|1<<31)
	for _, v := range []uint32{xid, 1, 0, 0, 0, 0} { // an accepted reply, a success
		answer = binary.BigEndian.AppendUint32(answer, v)
	}
	_, err := conn.Write(append(answer, result...))
	return err
}

// result carries a call out: SET, UNSET and GETADDR of versions 3 and 4, GETPORT of
// version 2.
func (m *portMapper) result(version, procedure uint32, call *xdrWords) []byte {
	program := [2]uint32{call.next(), call.next()}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case version == 2 && procedure == 3:
		return binary.BigEndian.AppendUint32(nil, m.ports[program])
	case version > 2 && procedure == 1:
		netid, address := call.text(), strings.Split(call.text(), ".")
		if k := len(address); strings.HasPrefix(netid, "tcp") && k >= 2 {
			high, _ := strconv.Atoi(address[k-2]) // an odd address is port 0, which nobody has
			low, _ := strconv.Atoi(address[k-1])
			m.ports[program] = uint32(high<<8 | low)
		}
	case version > 2 && procedure == 3:
		return []byte{0, 0, 0, 0}
	case procedure == 0:
		return nil
	}
	return []byte{0, 0, 0, 1}
}

// xdrWords is a message that is read from its front; what is missing is zero.
type xdrWords []byte

func (x *xdrWords) next() uint32 {
	if len(*x) < 4 {
		*x = nil
		return 0
	}
	v := binary.BigEndian.Uint32(*x)
	*x = (*x)[4:]
	return v
}

func (x *xdrWords) text() string {
	n := int(x.next())
	if n > len(*x) {
		*x = nil
		return ""
	}
	s := string((*x)[:n])
	*x = (*x)[min((n+3)&^3, len(*x)):]
	return s
}
