package smb

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
)

// sealingConn joins small messages and turns on encryption. The library writes and reads the 4-byte
// length of each message separately. Here it is joined with small messages, which halves the system
// calls and the wake-ups of the server.
//
// If seal is set, a session that may encrypt does so. SMB signing is a checksum per message,
// AES-CMAC, that the library computes in plain Go at 125 to 270 MB/s. Encryption is AES-GCM, which
// the CPU computes at gigabytes per second, and it authenticates as signing does. A client may
// encrypt whenever both sides have agreed on a cipher. The library does so only if the response to
// the login requests it, so sealingConn sets that flag in the response. It does this only if the
// server has negotiated SMB 3.1.1 with AES-GCM and the user is not a guest. The flag is safe to
// set: a server that cannot decrypt ends the session, and an attacker who modifies the response
// cannot weaken it.
type sealingConn struct {
	net.Conn
	in     *bufio.Reader
	length []byte // prefix of the next message to write
	login  *login // nil after the login
}

// connBuffer holds some small messages. Larger reads bypass it.
const connBuffer = 4 << 10

func newSealingConn(conn net.Conn, seal bool) *sealingConn {
	w := &sealingConn{Conn: conn, in: bufio.NewReaderSize(conn, connBuffer), length: make([]byte, 0, 4+connBuffer)}
	w.login = &login{seal: seal}
	return w
}

func (w *sealingConn) Read(p []byte) (int, error) {
	if w.login == nil {
		return w.in.Read(p)
	}
	if len(w.login.message) == 0 {
		if err := w.login.next(w.in); err != nil {
			return 0, err
		}
	}
	n := copy(p, w.login.message)
	w.login.message = w.login.message[n:]
	if w.login.over && len(w.login.message) == 0 {
		w.login = nil
	}
	return n, nil
}

func (w *sealingConn) Write(p []byte) (int, error) {
	if len(p) == 4 && len(w.length) == 0 {
		w.length = append(w.length, p...)
		return len(p), nil
	}
	joined := w.length
	w.length = w.length[:0]
	if len(p) > connBuffer { // copying would cost more than the extra call
		if _, err := w.Conn.Write(joined); err != nil {
			return 0, err
		}
		return w.Conn.Write(p)
	}
	if _, err := w.Conn.Write(append(joined, p...)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// login inspects the responses of a server until a user is logged in.
type login struct {
	seal    bool   // the session should encrypt
	message []byte // rest of the current message, which starts with its length
	gcm     bool   // SMB 3.1.1 and AES-GCM are negotiated
	over    bool
}

// Constants of MS-SMB2. All numbers are little-endian.
const (
	smbHeader         = 64
	commandNegotiate  = 0
	commandSetup      = 1
	statusMore        = 0xC0000016 // the login needs another round
	severityError     = 3          // the upper bits of a status
	dialect311        = 0x0311
	contextEncryption = 2
	cipherAES128GCM   = 2
	flagGuest         = 1
	flagNull          = 2
	flagEncrypt       = 4
)

// maxResponse is a limit far above the real size of a login response.
const maxResponse = 1 << 20

// next reads and inspects one message.
func (l *login) next(r io.Reader) error {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > maxResponse {
		return io.ErrShortBuffer
	}
	l.message = append(make([]byte, 0, 4+n), length[:]...)[:4+n]
	if _, err := io.ReadFull(r, l.message[4:]); err != nil {
		return err
	}
	if refused(l.message[4:]) {
		l.message = append(l.message[:4+smbHeader], errorBody...)
		binary.BigEndian.PutUint32(l.message, uint32(len(l.message)-4))
	}
	l.look(l.message[4:])
	return nil
}

// errorBody is the body of an error response without details.
var errorBody = []byte{9, 0, 0, 0, 0, 0, 0, 0, 0}

// refused reports whether a response refuses a login. Only its status matters. The body is replaced
// for the library: servers such as impacket's send a shorter one than MS-SMB2 requires, and a wrong
// password would look like a broken server.
func refused(p []byte) bool {
	if len(p) < smbHeader || string(p[:4]) != "\xfeSMB" {
		return false
	}
	status, command := binary.LittleEndian.Uint32(p[8:]), binary.LittleEndian.Uint16(p[12:])
	return command == commandSetup && status>>30 == severityError && status != statusMore
}

func (l *login) look(p []byte) {
	if len(p) < smbHeader+4 || string(p[:4]) != "\xfeSMB" {
		return
	}
	status, command := binary.LittleEndian.Uint32(p[8:]), binary.LittleEndian.Uint16(p[12:])
	switch {
	case status != 0:
	case command == commandNegotiate:
		l.gcm = agreesToGCM(p)
	case command == commandSetup:
		flags := p[smbHeader+2:]
		if l.seal && l.gcm && flags[0]&(flagGuest|flagNull) == 0 {
			flags[0] |= flagEncrypt
		}
		l.over = true
	}
}

// agreesToGCM reports whether a negotiate response selects AES-GCM in its contexts.
func agreesToGCM(p []byte) bool {
	if len(p) < smbHeader+64 || binary.LittleEndian.Uint16(p[smbHeader+4:]) != dialect311 {
		return false
	}
	at := uint64(binary.LittleEndian.Uint32(p[smbHeader+60:]))
	for range binary.LittleEndian.Uint16(p[smbHeader+6:]) {
		if at+8 > uint64(len(p)) {
			return false
		}
		kind, size := binary.LittleEndian.Uint16(p[at:]), uint64(binary.LittleEndian.Uint16(p[at+2:]))
		data := p[at+8:]
		if kind == contextEncryption {
			return size >= 4 && len(data) >= 4 && binary.LittleEndian.Uint16(data) == 1 && binary.LittleEndian.Uint16(data[2:]) == cipherAES128GCM
		}
		at += (8 + size + 7) &^ 7
	}
	return false
}
