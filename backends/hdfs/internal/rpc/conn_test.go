package rpc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/jcmturner/gokrb5/v8/crypto"
	"github.com/jcmturner/gokrb5/v8/gssapi"
	"github.com/jcmturner/gokrb5/v8/iana/keyusage"
	"github.com/jcmturner/gokrb5/v8/types"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// server is the other end of a connection. Its steps run one after another.
type server struct {
	t *testing.T
	net.Conn
}

// connected returns a connection whose greeting was read, and runs serve at its other end. The test
// ends after serve.
func connected(t *testing.T, serve func(*server)) *Conn {
	t.Helper()
	here, there := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer there.Close()
		s := &server{t, there}
		greeting := make([]byte, 7)
		if _, err := io.ReadFull(there, greeting); err != nil || string(greeting) != "hrpc\x09\x00\x00" {
			t.Errorf("the greeting is %q, %v", greeting, err)
		}
		header, who := s.request("hadoop.common.IpcConnectionContextProto")
		if call := int32(get(header, "callId").Int()); call != -3 {
			t.Errorf("the context is call %d, want -3", call)
		}
		if user := get(get(who[0], "userInfo").Message(), "effectiveUser").String(); user != "trainer" {
			t.Errorf("the user is %q, want trainer", user)
		}
		serve(s)
	}()
	t.Cleanup(func() {
		here.Close()
		<-done
	})
	c, err := Connect(here, Config{User: "trainer"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// request reads a packet with these messages after its header.
func (s *server) request(names ...protoreflect.FullName) (header protoreflect.Message, body []protoreflect.Message) {
	var length [4]byte
	_, _ = io.ReadFull(s, length[:]) // what is missing does not decode
	p := make([]byte, binary.BigEndian.Uint32(length[:]))
	_, _ = io.ReadFull(s, p)
	for _, name := range append([]protoreflect.FullName{"hadoop.common.RpcRequestHeaderProto"}, names...) {
		m, err := New(name, nil)
		if err != nil {
			s.t.Fatal(err)
		}
		encoded, n := protowire.ConsumeBytes(p)
		if n < 0 || proto.Unmarshal(encoded, m.Interface()) != nil {
			s.t.Errorf("the request has no %s", name)
			return m, append(body, m, m)
		}
		p, body = p[n:], append(body, m)
	}
	if len(p) > 0 {
		s.t.Errorf("%d bytes follow the request", len(p))
	}
	return body[0], body[1:]
}

// call reads a call of getFileInfo and returns its number.
func (s *server) call() uint32 {
	header, body := s.request("hadoop.common.RequestHeaderProto", "hadoop.hdfs.GetFileInfoRequestProto")
	if method := get(body[0], "methodName").String(); method != "getFileInfo" {
		s.t.Errorf("the method is %q, want getFileInfo", method)
	}
	if src := get(body[1], "src").String(); src != "/k" {
		s.t.Errorf("the path is %q, want /k", src)
	}
	return uint32(get(header, "callId").Int())
}

// responseTo returns a packet with an empty successful response to a call.
func responseTo(call uint32) []byte {
	p, err := pack(
		message{"hadoop.common.RpcResponseHeaderProto", Fields{"callId": call, "status": protoreflect.EnumNumber(0)}},
		message{"hadoop.hdfs.GetFileInfoResponseProto", nil})
	if err != nil {
		panic(err)
	}
	return p
}

// exception returns a packet with an exception.
func exception(call uint32, status protoreflect.EnumNumber, class, text string) []byte {
	p, err := pack(message{"hadoop.common.RpcResponseHeaderProto", Fields{
		"callId": call, "status": status, "exceptionClassName": class, "errorMsg": text, "errorDetail": protoreflect.EnumNumber(1),
	}})
	if err != nil {
		panic(err)
	}
	return p
}

// changed returns the packet with a byte of its length changed, and b after it.
func changed(packet []byte, at int, by byte, b ...byte) []byte {
	packet = append(bytes.Clone(packet), b...)
	packet[at] += by
	return packet
}

func TestCallReturnsResponse(t *testing.T) {
	c := connected(t, func(s *server) {
		for range 2 {
			_, _ = s.Write(responseTo(s.call()))
		}
	})
	for range 2 {
		if m, err := c.Call("getFileInfo", Fields{"src": "/k"}); err != nil || get(m, "fs").Message().IsValid() {
			t.Errorf("got %v, %v; want an empty response", m, err)
		}
	}
	if c.Broken() {
		t.Error("the connection is broken")
	}
}

func TestCallReturnsException(t *testing.T) {
	for _, tt := range []struct {
		what   string
		status protoreflect.EnumNumber
		call   uint32 // 0: that of the request
		broken bool
	}{
		{"of the call", 1, 0, false},
		{"at the end of the connection", 2, 0, true},
		{"for a greeting that is rejected", 2, 0xffffffdf, true},
	} {
		c := connected(t, func(s *server) {
			call := s.call()
			if tt.call != 0 {
				call = tt.call
			}
			_, _ = s.Write(exception(call, tt.status, "java.io.IOException", "no luck\n\tat java"))
		})
		_, err := c.Call("getFileInfo", Fields{"src": "/k"})
		var e *Error
		if !errors.As(err, &e) || e.Method() != "getFileInfo" || e.Desc() != "ERROR_APPLICATION" || e.Exception() != "java.io.IOException" || !strings.HasPrefix(e.Message(), "no luck\n") {
			t.Errorf("%s: got %#v, want the exception", tt.what, err)
		}
		if c.Broken() != tt.broken {
			t.Errorf("%s: broken is %t, want %t", tt.what, c.Broken(), tt.broken)
		}
	}
}

// A response must never be taken for that of another call, nor its length for the memory to allocate.
func TestCallRejectsWrongResponse(t *testing.T) {
	for _, tt := range []struct {
		what     string
		response func(call uint32) []byte
		want     error
	}{
		{"of another call", func(call uint32) []byte { return responseTo(call + 1) }, errSequence},
		{"with a byte too many", func(call uint32) []byte { return changed(responseTo(call), 3, 1, 0xff) }, errInvalid},
		{"with a header longer than the packet", func(call uint32) []byte { return changed(responseTo(call), 4, 0x70) }, errInvalid},
		{"without a header", func(uint32) []byte { return make([]byte, 4) }, errInvalid},
		{"of two gigabytes", func(call uint32) []byte { return changed(responseTo(call), 0, 0x7f) }, errInvalid},
		{"that is not complete", func(call uint32) []byte { return changed(responseTo(call), 3, 1) }, io.ErrUnexpectedEOF},
		{"that is missing", func(uint32) []byte { return nil }, io.EOF},
	} {
		c := connected(t, func(s *server) { _, _ = s.Write(tt.response(s.call())) })
		if m, err := c.Call("getFileInfo", Fields{"src": "/k"}); !errors.Is(err, tt.want) || m != nil {
			t.Errorf("response %s: got %v, %v; want %v", tt.what, m, err, tt.want)
		}
		if !c.Broken() {
			t.Errorf("response %s: the connection is not broken", tt.what)
		}
	}
}

// sessionKey returns a key as Kerberos servers issue them.
func sessionKey(t *testing.T) types.EncryptionKey {
	t.Helper()
	const aes256 = 18
	etype, err := crypto.GetEtype(aes256)
	if err != nil {
		t.Fatal(err)
	}
	key, err := types.GenerateEncryptionKey(etype)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// signed returns a wrap token of the server with a signature.
func signed(t *testing.T, key types.EncryptionKey, payload []byte) []byte {
	t.Helper()
	w := gssapi.WrapToken{Flags: 1, EC: 12, Payload: payload}
	if err := w.SetCheckSum(key, keyusage.GSSAPI_ACCEPTOR_SEAL); err != nil {
		t.Fatal(err)
	}
	token, err := w.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// encrypted returns a wrap token of the server whose payload is encrypted together with its header.
func encrypted(t *testing.T, key types.EncryptionKey, payload []byte) []byte {
	t.Helper()
	head := []byte{5, 4, 3, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	data, err := crypto.GetEncryptedData(append(bytes.Clone(payload), head...), key, keyusage.GSSAPI_ACCEPTOR_SEAL, 0)
	if err != nil {
		t.Fatal(err)
	}
	return append(head, data.Cipher...)
}

func TestCallOpensProtectedResponse(t *testing.T) {
	key, other := sessionKey(t), sessionKey(t)
	for _, tt := range []struct {
		what    string
		private bool
		token   func(response []byte) []byte
		ok      bool
	}{
		{"signed", false, func(r []byte) []byte { return signed(t, key, r) }, true},
		{"encrypted", true, func(r []byte) []byte { return encrypted(t, key, r) }, true},
		{"signed with another key", false, func(r []byte) []byte { return signed(t, other, r) }, false},
		{"encrypted with another key", true, func(r []byte) []byte { return encrypted(t, other, r) }, false},
		{"only signed", true, func(r []byte) []byte { return signed(t, key, r) }, false},
		{"changed", false, func(r []byte) []byte { return changed(signed(t, key, r), 20, 1) }, false},
		{"encrypted without a text", true, func([]byte) []byte { return encrypted(t, key, nil)[:16] }, false}, // this ended the process
		{"encrypted and cut", true, func(r []byte) []byte { return encrypted(t, key, r)[:16+27] }, false},
		{"encrypted, but shorter than a block", true, func(r []byte) []byte { return encrypted(t, key, r)[:16+28] }, false},
		{"no token", true, func([]byte) []byte { return []byte{5, 4} }, false},
	} {
		c := connected(t, func(s *server) {
			p, err := pack(
				message{"hadoop.common.RpcResponseHeaderProto", Fields{"callId": uint32(0xffffffdf), "status": protoreflect.EnumNumber(0)}},
				message{saslMessage, Fields{"state": stateWrap, "token": tt.token(responseTo(s.call()))}})
			if err != nil {
				t.Error(err)
			}
			_, _ = s.Write(p)
		})
		c.seal = &seal{key: key, private: tt.private}
		if _, err := c.Call("getFileInfo", Fields{"src": "/k"}); (err == nil) != tt.ok || c.Broken() == tt.ok {
			t.Errorf("a response that is %s: got %v and broken is %t, want success: %t", tt.what, err, c.Broken(), tt.ok)
		}
	}
	c := connected(t, func(s *server) { _, _ = s.Write(responseTo(s.call())) })
	c.seal = &seal{key: key}
	if _, err := c.Call("getFileInfo", Fields{"src": "/k"}); err == nil || !c.Broken() {
		t.Error("a response without the agreed protection is accepted")
	}
}

func TestHandshakeChoosesStrongestProtection(t *testing.T) {
	key := sessionKey(t)
	for offer, want := range map[byte]byte{1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 7: 4, 0: 0, 8: 0} {
		answer, layer, err := choose(signed(t, key, []byte{offer, 1, 0, 0}), key)
		if want == 0 {
			if err == nil {
				t.Errorf("offer %d: got protection %d, want an error", offer, layer)
			}
			continue
		}
		if err != nil || layer != want {
			t.Errorf("offer %d: got protection %d, %v; want %d", offer, layer, err, want)
			continue
		}
		var token gssapi.WrapToken
		if err := token.Unmarshal(answer, false); err != nil || !bytes.Equal(token.Payload, []byte{want, 1, 0, 0}) {
			t.Errorf("offer %d: the answer is %v, %v", offer, token.Payload, err)
		}
	}
	for what, challenge := range map[string][]byte{
		"of another key": signed(t, sessionKey(t), []byte{1, 1, 0, 0}), "without a size": signed(t, key, []byte{1}), "empty": nil,
	} {
		if _, layer, err := choose(challenge, key); err == nil {
			t.Errorf("challenge %s: got protection %d, want an error", what, layer)
		}
	}
}

func TestHandshakeNeedsKerberosOffer(t *testing.T) {
	offer := func(names ...string) protoreflect.Message {
		m, err := New(saslMessage, Fields{"state": stateNegotiate})
		if err != nil {
			t.Fatal(err)
		}
		list := m.Mutable(m.Descriptor().Fields().ByName("auths")).List()
		for _, name := range names {
			auth := list.AppendMutable().Message()
			auth.Set(auth.Descriptor().Fields().ByName("method"), protoreflect.ValueOf(name))
		}
		return m
	}
	methods, err := kerberosOf(offer("TOKEN", "KERBEROS", "SIMPLE"))
	if err != nil || methods.Len() != 1 || get(methods.Get(0).Message(), "method").String() != "KERBEROS" {
		t.Errorf("got %v, %v; want Kerberos alone", methods, err)
	}
	for _, names := range [][]string{nil, {"TOKEN"}} {
		if _, err := kerberosOf(offer(names...)); !errors.Is(err, errNoKerberos) {
			t.Errorf("%q: got %v, want %v", names, err, errNoKerberos)
		}
	}
}

func TestServiceNamesHostOfNameNode(t *testing.T) {
	for principal, want := range map[string]string{"nn/_HOST": "nn/a.example", "nn/b.example": "nn/b.example", "nn": "nn", "nn/_HOSTS": "nn/_HOSTS"} {
		if got := service(principal, "a.example"); got != want {
			t.Errorf("%s: got %q, want %q", principal, got, want)
		}
	}
}
