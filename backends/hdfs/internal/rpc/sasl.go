package rpc

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jcmturner/gokrb5/v8/crypto"
	"github.com/jcmturner/gokrb5/v8/gssapi"
	"github.com/jcmturner/gokrb5/v8/iana/keyusage"
	"github.com/jcmturner/gokrb5/v8/spnego"
	"github.com/jcmturner/gokrb5/v8/types"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const saslMessage = "hadoop.common.RpcSaslProto"

// States of a SASL message.
const (
	stateSuccess   = protoreflect.EnumNumber(0)
	stateNegotiate = protoreflect.EnumNumber(1)
	stateInitiate  = protoreflect.EnumNumber(2)
	stateChallenge = protoreflect.EnumNumber(3)
	stateResponse  = protoreflect.EnumNumber(4)
	stateWrap      = protoreflect.EnumNumber(5)
)

var errNoKerberos = errors.New("kerberos authentication not supported by namenode")

// login authenticates both sides with a Kerberos ticket, and agrees on the protection of responses.
func (c *Conn) login(cfg Config) error {
	if err := c.sendSASL(Fields{"state": stateNegotiate}); err != nil {
		return err
	}
	offer, err := c.receiveSASL("sasl", stateNegotiate)
	if err != nil {
		return err
	}
	methods, err := kerberosOf(offer)
	if err != nil {
		return err
	}
	ticket, key, err := cfg.Kerberos.GetServiceTicket(service(cfg.Principal, cfg.Host))
	if err != nil {
		return err
	}
	token, err := spnego.NewNegTokenInitKRB5(cfg.Kerberos, ticket, key)
	if err != nil {
		return err
	}
	if err := c.sendSASL(Fields{"state": stateInitiate, "token": token.MechTokenBytes, "auths": methods}); err != nil {
		return err
	}
	challenge, err := c.receiveSASL("sasl", stateChallenge)
	if err != nil {
		return err
	}
	answer, protection, err := choose(get(challenge, "token").Bytes(), key)
	if err != nil {
		return err
	}
	if err := c.sendSASL(Fields{"state": stateResponse, "token": answer}); err != nil {
		return err
	}
	if _, err := c.receiveSASL("sasl", stateSuccess); err != nil {
		return err
	}
	if protection != layerNone {
		c.seal = &seal{key: key, private: protection == layerPrivacy}
	}
	return nil
}

func (c *Conn) sendSASL(fields Fields) error {
	return c.send(saslCall, message{saslMessage, fields})
}

func (c *Conn) receiveSASL(method string, state protoreflect.EnumNumber) (protoreflect.Message, error) {
	header, m, err := receive(c.net, saslMessage)
	if err == nil {
		err = check(method, header, saslCall)
	}
	if err != nil {
		return nil, err
	}
	if is := get(m, "state").Enum(); is != state {
		return nil, fmt.Errorf("unexpected SASL state: %d instead of %d", is, state)
	}
	return m, nil
}

// kerberosOf reduces the offered methods of authentication to Kerberos.
func kerberosOf(offer protoreflect.Message) (protoreflect.List, error) {
	methods := offer.Mutable(offer.Descriptor().Fields().ByName("auths")).List()
	for i := range methods.Len() {
		if m := methods.Get(i); get(m.Message(), "method").String() == "KERBEROS" {
			methods.Set(0, m)
			methods.Truncate(1)
			return methods, nil
		}
	}
	return nil, errNoKerberos
}

// service returns the principal of a NameNode.
func service(principal, host string) string {
	if name, ok := strings.CutSuffix(principal, "/_HOST"); ok {
		return name + "/" + host
	}
	return principal
}

// Protections of messages (RFC 4752). A server offers several as a sum.
const (
	layerNone      = 1
	layerIntegrity = 2
	layerPrivacy   = 4
)

// choose answers the last challenge, which lists the protections that the server offers, by the
// strongest of them.
func choose(challenge []byte, key types.EncryptionKey) (answer []byte, protection byte, err error) {
	offer, err := (&seal{key: key}).open(challenge)
	if err != nil {
		return nil, 0, err
	}
	if len(offer) != 4 { // the protections, and the size of the server's buffer
		return nil, 0, errors.New("invalid challenge from namenode")
	}
	for _, layer := range []byte{layerPrivacy, layerIntegrity, layerNone} {
		if offer[0]&layer == 0 {
			continue
		}
		choice := slices.Clone(offer)
		choice[0] = layer
		signed, err := gssapi.NewInitiatorWrapToken(choice, key)
		if err != nil {
			return nil, 0, err
		}
		answer, err = signed.Marshal()
		return answer, layer, err
	}
	return nil, 0, fmt.Errorf("no known protection among those that the namenode offers: %d", offer[0])
}

// seal opens responses that are signed, or encrypted if private is true.
type seal struct {
	key     types.EncryptionKey
	private bool
}

// open returns what a wrap token of the server (RFC 4121) contains. After an encrypted response
// follow other bytes.
func (s *seal) open(token []byte) ([]byte, error) {
	var t gssapi.WrapToken
	if err := t.Unmarshal(token, true); err != nil {
		return nil, err
	}
	if s.private {
		return s.decrypt(t)
	}
	if _, err := t.Verify(s.key, keyusage.GSSAPI_ACCEPTOR_SEAL); err != nil {
		return nil, fmt.Errorf("invalid signature of a response: %w", err)
	}
	return t.Payload, nil
}

// decrypt returns the plain text of a token. The library of Kerberos panics if it is too short.
func (s *seal) decrypt(t gssapi.WrapToken) ([]byte, error) {
	const sealed = 2 // flag
	etype, err := crypto.GetEtype(s.key.KeyType)
	if err != nil {
		return nil, err
	}
	if t.Flags&sealed == 0 || len(t.Payload) < etype.GetConfounderByteSize()+etype.GetHMACBitLength()/8 {
		return nil, errors.New("a response is not encrypted")
	}
	return crypto.DecryptMessage(t.Payload, s.key, keyusage.GSSAPI_ACCEPTOR_SEAL)
}

// unwrap reads a protected response to a call.
func (c *Conn) unwrap(method string) ([]byte, error) {
	m, err := c.receiveSASL(method, stateWrap)
	if err != nil {
		return nil, err
	}
	opened, err := c.seal.open(get(m, "token").Bytes())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errInvalid, err)
	}
	return opened, nil
}
