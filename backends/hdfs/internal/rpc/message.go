package rpc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Fields are fields of a message by their names in Hadoop's protocol. Their values have the types
// that protoreflect.ValueOf accepts.
type Fields map[protoreflect.Name]any

// New returns a message of Hadoop's protocol, such as hadoop.hdfs.FsPermissionProto. It panics if
// the message has no such field.
func New(name protoreflect.FullName, fields Fields) (protoreflect.Message, error) {
	t, err := protoregistry.GlobalTypes.FindMessageByName(name)
	if err != nil {
		return nil, fmt.Errorf("message %s: %w", name, err)
	}
	m := t.New()
	for field, value := range fields {
		m.Set(m.Descriptor().Fields().ByName(field), protoreflect.ValueOf(value))
	}
	return m, nil
}

func get(m protoreflect.Message, field protoreflect.Name) protoreflect.Value {
	return m.Get(m.Descriptor().Fields().ByName(field))
}

// message is a message to send.
type message struct {
	name   protoreflect.FullName
	fields Fields
}

// pack encodes messages as a packet: its length, and each message after its own length.
func pack(messages ...message) ([]byte, error) {
	const head = 4
	p := make([]byte, head, 256)
	for _, m := range messages {
		filled, err := New(m.name, m.fields)
		if err != nil {
			return nil, err
		}
		body, err := proto.Marshal(filled.Interface())
		if err != nil {
			return nil, fmt.Errorf("message %s: %w", m.name, err)
		}
		p = protowire.AppendBytes(p, body)
	}
	binary.BigEndian.PutUint32(p, uint32(len(p)-head))
	return p, nil
}

// maxPacket is the length of the longest accepted response. It is the default of clients in Java
// (ipc.maximum.response.length).
const maxPacket = 128 << 20

var errInvalid = errors.New("invalid response from namenode")

// receive reads a packet with the header of a response and its body, a message with the given name.
// A failed call has no body.
func receive(from io.Reader, name protoreflect.FullName) (header, body protoreflect.Message, err error) {
	if header, err = New("hadoop.common.RpcResponseHeaderProto", nil); err != nil {
		return nil, nil, err
	}
	if body, err = New(name, nil); err != nil {
		return nil, nil, err
	}
	var length [4]byte
	if _, err := io.ReadFull(from, length[:]); err != nil {
		return nil, nil, err
	}
	size := binary.BigEndian.Uint32(length[:])
	if size == 0 || size > maxPacket {
		return nil, nil, fmt.Errorf("%w: %d bytes", errInvalid, size)
	}
	p := make([]byte, size)
	if _, err := io.ReadFull(from, p); err != nil {
		return nil, nil, err
	}
	for _, m := range []protoreflect.Message{header, body} {
		if len(p) == 0 {
			break
		}
		encoded, n := protowire.ConsumeBytes(p)
		if n < 0 {
			return nil, nil, errInvalid
		}
		if err := proto.Unmarshal(encoded, m.Interface()); err != nil {
			return nil, nil, fmt.Errorf("%w: %w", errInvalid, err)
		}
		p = p[n:]
	}
	if len(p) > 0 {
		return nil, nil, errInvalid
	}
	return header, body, nil
}
