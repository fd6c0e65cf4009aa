package nfstest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv4"
)

// client is the server's state of one client.
type client struct {
	id        uint64
	owner     string
	verifier  nfsv4.Verifier4
	confirmed bool
	complete  bool // RECLAIM_COMPLETE was received
	seq       uint32
	created   *nfsv4.CreateSession4resok // response to the last CREATE_SESSION
	renewed   time.Time
	opens     map[[12]byte]*opened
	revoked   map[[12]byte]nfsv4.Nfsstat4
	flags     uint32 // SEQ4_STATUS_
}

// opened is an open file of a client.
type opened struct {
	node   *node
	access uint32
}

type session struct {
	client *client
	slots  []slot
}

// slot caches the last response.
type slot struct {
	seq    uint32
	answer []byte // nil: not cached
	first  []byte // the results of SEQUENCE
	more   bool   // more operations followed
}

func (s *Server) lease() time.Duration {
	if s.Lease == 0 {
		return time.Minute
	}
	return s.Lease
}

// Restart simulates a crash and restart of the server. It drops all clients, uncommitted data and
// connections.
func (s *Server) Restart() {
	s.mu.Lock()
	s.clients = make(map[uint64]*client)
	s.sessions = make(map[nfsv4.Sessionid4]*session)
	s.boots++
	s.verifier[0] = s.boots
	for _, n := range s.nodes {
		if n.kind == regular {
			n.data = bytes.Clone(n.durable)
		}
	}
	s.mu.Unlock()
	s.CutAll()
}

// RestartAfter is Restart of a server that is away for so long.
func (s *Server) RestartAfter(away time.Duration) {
	s.mu.Lock()
	s.back = time.Now().Add(away)
	s.mu.Unlock()
	s.Restart()
}

// ForgetSessions simulates a server that is short of memory. It drops the sessions; clients and
// their open files stay.
func (s *Server) ForgetSessions() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions = make(map[nfsv4.Sessionid4]*session)
}

// Revoke closes the open files of all clients, as an operator or an expired lease does. status is
// NFS4ERR_ADMIN_REVOKED or NFS4ERR_EXPIRED.
func (s *Server) Revoke(status nfsv4.Nfsstat4) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		for id := range c.opens {
			c.revoked[id] = status
			c.flags |= nfsv4.SEQ4_STATUS_ADMIN_STATE_REVOKED
			if status == nfsv4.NFS4ERR_EXPIRED {
				c.flags |= nfsv4.SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED
			}
		}
		clear(c.opens)
	}
}

// SetFlags sets status bits of SEQUENCE for all clients.
func (s *Server) SetFlags(flags uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		c.flags |= flags
	}
}

// Opens returns the number of open files.
func (s *Server) Opens() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		n += len(c.opens)
	}
	return n
}

// Flags returns the status bits of SEQUENCE that are set for any client.
func (s *Server) Flags() (flags uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		flags |= c.flags
	}
	return flags
}

// Clients returns the number of known clients.
func (s *Server) Clients() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.clients)
}

// Sessions returns the number of sessions.
func (s *Server) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// expireLocked drops clients that were silent for too long.
func (s *Server) expireLocked() {
	for id, c := range s.clients {
		if time.Since(c.renewed) <= s.lease() {
			continue
		}
		s.forgetLocked(id)
	}
}

func (s *Server) forgetLocked(id uint64) {
	for sid, sess := range s.sessions {
		if sess.client.id == id {
			delete(s.sessions, sid)
		}
	}
	delete(s.clients, id)
}

func (s *Server) nextIDLocked() uint64 {
	s.lastID++
	return s.lastID<<8 | uint64(s.boots)
}

func (x *execution) exchangeID(a *nfsv4.ExchangeId4args) (nfsv4.Nfsstat4, io.WriterTo) {
	s := x.s
	ok := &nfsv4.ExchangeId4resok{
		EirFlags: nfsv4.EXCHGID4_FLAG_USE_NON_PNFS, EirStateProtect: &nfsv4.StateProtect4R_SP4_NONE{},
		EirServerOwner: nfsv4.ServerOwner4{SoMajorId: []byte("nfstest")}, EirServerScope: []byte("nfstest"),
	}
	for _, c := range s.clients {
		if c.owner == string(a.EiaClientowner.CoOwnerid) && c.verifier == a.EiaClientowner.CoVerifier {
			ok.EirClientid, ok.EirSequenceid = c.id, c.seq
			if c.confirmed {
				ok.EirFlags |= nfsv4.EXCHGID4_FLAG_CONFIRMED_R
				ok.EirSequenceid = 0xdead // has no meaning then
			}
			return nfsv4.NFS4_OK, ok
		}
	}
	c := &client{
		id: s.nextIDLocked(), owner: string(a.EiaClientowner.CoOwnerid), verifier: a.EiaClientowner.CoVerifier,
		seq: 7, renewed: time.Now(), opens: make(map[[12]byte]*opened), revoked: make(map[[12]byte]nfsv4.Nfsstat4),
	}
	s.clients[c.id] = c
	ok.EirClientid, ok.EirSequenceid = c.id, c.seq
	return nfsv4.NFS4_OK, ok
}

func (x *execution) createSession(a *nfsv4.CreateSession4args) (nfsv4.Nfsstat4, io.WriterTo) {
	s := x.s
	c := s.clients[a.CsaClientid]
	switch {
	case c == nil:
		return nfsv4.NFS4ERR_STALE_CLIENTID, nil
	case c.created != nil && a.CsaSequence == c.seq-1:
		s.replays++
		return nfsv4.NFS4_OK, c.created
	case a.CsaSequence != c.seq:
		return nfsv4.NFS4ERR_SEQ_MISORDERED, nil
	}
	for id, other := range s.clients { // an earlier instance of the same client
		if other != c && other.owner == c.owner {
			s.forgetLocked(id)
		}
	}
	c.confirmed, c.renewed = true, time.Now()
	slots := s.Slots
	if slots == 0 {
		slots = 8
	}
	fore := a.CsaForeChanAttrs
	slots = min(slots, int(fore.CaMaxrequests))
	fore.CaMaxrequests = uint32(slots)
	ok := &nfsv4.CreateSession4resok{CsrSequence: c.seq, CsrForeChanAttrs: fore, CsrBackChanAttrs: a.CsaBackChanAttrs}
	binary.BigEndian.PutUint64(ok.CsrSessionid[:], c.id)
	binary.BigEndian.PutUint64(ok.CsrSessionid[8:], s.nextIDLocked())
	s.sessions[ok.CsrSessionid] = &session{client: c, slots: make([]slot, slots)}
	c.seq++
	c.created = ok
	return nfsv4.NFS4_OK, ok
}

func (x *execution) destroyClient(id uint64) nfsv4.Nfsstat4 {
	for _, sess := range x.s.sessions {
		if sess.client.id == id {
			return nfsv4.NFS4ERR_CLIENTID_BUSY
		}
	}
	if x.s.clients[id] == nil {
		return nfsv4.NFS4ERR_STALE_CLIENTID
	}
	delete(x.s.clients, id)
	return nfsv4.NFS4_OK
}

// sequence starts a request in a slot. If it repeats the last request, replay is the cached
// response.
func (x *execution) sequence(a *nfsv4.Sequence4args) (status nfsv4.Nfsstat4, body io.WriterTo, replay []byte) {
	sess := x.s.sessions[a.SaSessionid]
	switch {
	case sess == nil:
		return nfsv4.NFS4ERR_BADSESSION, nil, nil
	case int(a.SaSlotid) >= len(sess.slots):
		return nfsv4.NFS4ERR_BADSLOT, nil, nil
	}
	l := &sess.slots[a.SaSlotid]
	x.client, x.session = sess.client, sess
	x.client.renewed = time.Now()
	switch a.SaSequenceid {
	case l.seq + 1:
	case l.seq:
		x.s.replays++
		return nfsv4.NFS4_OK, nil, l.again()
	default:
		x.s.trouble = append(x.s.trouble, fmt.Sprintf("request %d on slot %d, whose last was %d", a.SaSequenceid, a.SaSlotid, l.seq))
		return nfsv4.NFS4ERR_SEQ_MISORDERED, nil, nil
	}
	l.seq = a.SaSequenceid
	x.slot, x.keep = l, a.SaCachethis
	most := uint32(len(sess.slots) - 1)
	return nfsv4.NFS4_OK, &nfsv4.Sequence4resok{
		SrSessionid: a.SaSessionid, SrSequenceid: a.SaSequenceid, SrSlotid: a.SaSlotid,
		SrHighestSlotid: most, SrTargetHighestSlotid: most, SrStatusFlags: x.client.flags,
	}, nil
}

// again returns the cached response. Without one it reports only that the request was executed.
func (l *slot) again() []byte {
	if l.answer != nil {
		return l.answer
	}
	status, results := nfsv4.NFS4_OK, uint32(1)
	if l.more {
		status, results = nfsv4.NFS4ERR_RETRY_UNCACHED_REP, 2
	}
	b := words(uint32(status), 0, results)
	b = append(b, l.first...)
	if l.more {
		b = append(b, words(uint32(nfsv4.OP_ILLEGAL), uint32(status))...)
	}
	return b
}

// stateOf returns the open file of a stateid.
func (x *execution) stateOf(id nfsv4.Stateid4) (*opened, nfsv4.Nfsstat4) {
	if id.Seqid == 1 && id.Other == [12]byte{} {
		id = x.current
	}
	if status, ok := x.client.revoked[id.Other]; ok {
		return nil, status
	}
	o := x.client.opens[id.Other]
	if o == nil {
		return nil, nfsv4.NFS4ERR_BAD_STATEID
	}
	return o, nfsv4.NFS4_OK
}

func (x *execution) freeStateid(id nfsv4.Stateid4) nfsv4.Nfsstat4 {
	c := x.client
	if _, ok := c.revoked[id.Other]; !ok {
		return nfsv4.NFS4ERR_BAD_STATEID
	}
	delete(c.revoked, id.Other)
	if len(c.revoked) == 0 {
		c.flags &^= nfsv4.SEQ4_STATUS_ADMIN_STATE_REVOKED | nfsv4.SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED
	}
	return nfsv4.NFS4_OK
}

func (x *execution) reclaimComplete() nfsv4.Nfsstat4 {
	if x.client.complete && x.client.flags&nfsv4.SEQ4_STATUS_RESTART_RECLAIM_NEEDED == 0 {
		return nfsv4.NFS4ERR_COMPLETE_ALREADY
	}
	x.client.complete = true
	x.client.flags &^= nfsv4.SEQ4_STATUS_RESTART_RECLAIM_NEEDED
	return nfsv4.NFS4_OK
}

func words(v ...uint32) []byte {
	var b []byte
	for _, w := range v {
		b = binary.BigEndian.AppendUint32(b, w)
	}
	return b
}

func opNumbers(ops []nfsv4.NfsArgop4) []uint32 {
	numbers := make([]uint32, len(ops))
	for i, op := range ops {
		numbers[i] = uint32(op.GetArgop())
	}
	return numbers
}
