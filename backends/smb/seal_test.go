package smb

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
)

// framed prefixes a message with its length.
func framed(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...)
}

// answer returns a message of a server: a header and its body.
func answer(command uint16, status uint32, body ...byte) []byte {
	p := make([]byte, smbHeader)
	copy(p, "\xfeSMB")
	binary.LittleEndian.PutUint32(p[8:], status)
	binary.LittleEndian.PutUint16(p[12:], command)
	return append(p, body...)
}

// negotiated returns the response of a server that chose a dialect and, in its second context, a
// cipher.
func negotiated(dialect, cipher uint16) []byte {
	body := make([]byte, 64)
	binary.LittleEndian.PutUint16(body[4:], dialect)
	binary.LittleEndian.PutUint16(body[6:], 2)
	binary.LittleEndian.PutUint32(body[60:], smbHeader+64)
	body = append(body, 1, 0, 6, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0) // integrity: six bytes, padded
	body = append(body, contextEncryption, 0, 4, 0, 0, 0, 0, 0, 1, 0, byte(cipher), 0)
	return answer(commandNegotiate, 0, body...)
}

func TestLoginIsMadeToEncrypt(t *testing.T) {
	for _, tt := range []struct {
		name            string
		dialect, cipher uint16
		flags, want     byte
		seal            bool
	}{
		{"SMB 3.1.1 and GCM", dialect311, cipherAES128GCM, 0, flagEncrypt, true},
		{"the server asks for it", dialect311, cipherAES128GCM, flagEncrypt, flagEncrypt, true},
		{"CCM is as slow as signing", dialect311, 1, 0, 0, true},
		{"SMB 3.0.2 knows CCM alone", 0x0302, cipherAES128GCM, 0, 0, true},
		{"a guest has no key", dialect311, cipherAES128GCM, flagGuest, flagGuest, true},
		{"nobody has no key", dialect311, cipherAES128GCM, flagNull, flagNull, true},
		{"it is not wanted", dialect311, cipherAES128GCM, 0, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			setup, after := answer(commandSetup, 0, 9, 0, tt.flags, 0), answer(commandSetup, 0, 9, 0, 0, 0)
			round := answer(commandSetup, statusMore, 9, 0, 0, 0)
			sent := [][]byte{framed(negotiated(tt.dialect, tt.cipher)), framed(round), framed(setup), framed(after)}
			client, server := net.Pipe()
			defer client.Close()
			go func() {
				_, _ = server.Write(bytes.Join(sent, nil))
				server.Close()
			}()
			got, err := io.ReadAll(newSealingConn(client, tt.seal))
			if err != nil {
				t.Fatal(err)
			}
			want := bytes.Join(sent, nil)
			want[len(want)-len(sent[3])-2] = tt.want
			if !bytes.Equal(got, want) {
				t.Errorf("the client read\n%x, want\n%x", got, want)
			}
		})
	}
}

// A server that refuses a wrong password with a body of two bytes once looked broken, and the login
// was retried until the timeout.
func TestLoginRejectionNeedsNoBody(t *testing.T) {
	for name, body := range map[string][]byte{
		"none": nil, "short": {9, 0}, "one of a success": {9, 0, 0, 0, 72, 0, 0, 1}, "as it should be": {9, 0, 0, 0, 0, 0, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := net.Pipe()
			defer client.Close()
			go func() {
				_, _ = server.Write(framed(answer(commandSetup, statusLogonFailure, body...)))
				_ = server.Close()
			}()
			got, err := io.ReadAll(newSealingConn(client, false))
			want := framed(answer(commandSetup, statusLogonFailure, 9, 0, 0, 0, 0, 0, 0, 0, 0))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("got %x, %v; want %x", got, err, want)
			}
		})
	}
}

func TestHostileNegotiation(t *testing.T) {
	whole := negotiated(dialect311, cipherAES128GCM)
	for n := range whole {
		if agreesToGCM(whole[:n]) {
			t.Errorf("an answer cut after %d of %d bytes agrees to a cipher", n, len(whole))
		}
	}
	if !agreesToGCM(whole) {
		t.Error("the whole answer does not agree to the cipher")
	}
}

func TestFrameIsWrittenAtOnce(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	conn, err := net.Dial("tcp", server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	counted := &writes{Conn: conn}
	w := newSealingConn(counted, false)
	for _, p := range []string{"\x00\x00\x00\x05", "hello", "\x00\x00\x00\x04", "four"} {
		if n, err := w.Write([]byte(p)); n != len(p) || err != nil {
			t.Fatalf("Write(%q) = %d, %v, want all", p, n, err)
		}
	}
	if want := []string{"\x00\x00\x00\x05hello", "\x00\x00\x00\x04four"}; len(counted.all) != 2 || counted.all[0] != want[0] || counted.all[1] != want[1] {
		t.Errorf("written were %q, want %q", counted.all, want)
	}
}

// writes records what is written to a connection.
type writes struct {
	net.Conn
	all []string
}

func (w *writes) Write(p []byte) (int, error) {
	w.all = append(w.all, string(p))
	return len(p), nil
}
