package rpc

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	krb "github.com/jcmturner/gokrb5/v8/client"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Config says who connects to which NameNode.
type Config struct {
	User string // ignored with Kerberos

	Kerberos  *krb.Client // nil: no Kerberos
	Principal string      // of the NameNode, without a realm; an instance _HOST stands for Host
	Host      string      // of the NameNode
}

// Conn is a connection to a NameNode. One goroutine uses it at a time. Deadlines are those of the
// net.Conn.
type Conn struct {
	net    net.Conn
	client []byte // identifies the client; a NameNode remembers its last calls
	calls  int32
	seal   *seal // nil: responses are plain
	broken bool
}

// Parts of the greeting.
const (
	magic        = "hrpc"
	version      = 9
	serviceClass = 0
	authNone     = 0
	authSASL     = 0xdf
)

// Numbers of requests that are not calls.
const (
	contextCall = -3
	saslCall    = -33
)

const protocol = "org.apache.hadoop.hdfs.protocol.ClientProtocol"

// Connect greets the NameNode at the other end of a connection, and logs in if there is a Kerberos
// client. Without Kerberos it does not wait for a response: the first call returns the reason if
// the NameNode rejects the client. If Connect fails, the caller closes the connection.
func Connect(conn net.Conn, cfg Config) (*Conn, error) {
	c := &Conn{net: conn, client: []byte(rand.Text()[:16])}
	user, auth := cfg.User, byte(authNone)
	if cfg.Kerberos != nil {
		who := cfg.Kerberos.Credentials
		user, auth = who.UserName()+"@"+who.Realm(), authSASL
	}
	if _, err := conn.Write(append([]byte(magic), version, serviceClass, auth)); err != nil {
		return nil, err
	}
	if cfg.Kerberos != nil {
		if err := c.login(cfg); err != nil {
			return nil, fmt.Errorf("SASL handshake: %w", err)
		}
	}
	info, err := New("hadoop.common.UserInformationProto", Fields{"effectiveUser": user})
	if err != nil {
		return nil, err
	}
	return c, c.send(contextCall, message{"hadoop.common.IpcConnectionContextProto", Fields{"userInfo": info, "protocol": protocol}})
}

// send sends a packet with the header of a request.
func (c *Conn) send(call int32, body ...message) error {
	const (
		protocolBuffer = protoreflect.EnumNumber(2)
		finalPacket    = protoreflect.EnumNumber(0)
	)
	header := message{"hadoop.common.RpcRequestHeaderProto", Fields{
		"rpcKind": protocolBuffer, "rpcOp": finalPacket, "callId": call, "clientId": c.client,
	}}
	p, err := pack(append([]message{header}, body...)...)
	if err != nil {
		return err
	}
	_, err = c.net.Write(p)
	return err
}

// Call sends a request of Hadoop's ClientProtocol and returns the response. An exception of the
// NameNode is returned as *Error.
func (c *Conn) Call(method string, args Fields) (protoreflect.Message, error) {
	response, err := c.exchange(method, args)
	if err == nil {
		return response, nil
	}
	var exception *Error
	if !errors.As(err, &exception) || exception.fatal {
		c.broken = true
	}
	return nil, err
}

func (c *Conn) exchange(method string, args Fields) (protoreflect.Message, error) {
	const protocolVersion = uint64(1)
	name := protoreflect.FullName("hadoop.hdfs." + strings.ToUpper(method[:1]) + method[1:])
	c.calls++
	err := c.send(c.calls,
		message{"hadoop.common.RequestHeaderProto", Fields{
			"methodName": method, "declaringClassProtocolName": protocol, "clientProtocolVersion": protocolVersion,
		}},
		message{name + "RequestProto", args})
	if err != nil {
		return nil, err
	}
	from := io.Reader(c.net)
	if c.seal != nil {
		opened, err := c.unwrap(method)
		if err != nil {
			return nil, err
		}
		from = bytes.NewReader(opened)
	}
	header, response, err := receive(from, name+"ResponseProto")
	if err != nil {
		return nil, err
	}
	return response, check(method, header, c.calls)
}

// Broken reports whether the connection can no longer be used: it ended, or what it carries can no
// longer be trusted to belong to the next call.
func (c *Conn) Broken() bool { return c.broken }

// Close closes the connection.
func (c *Conn) Close() error { return c.net.Close() }
