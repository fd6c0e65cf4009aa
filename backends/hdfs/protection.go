package hdfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"github.com/colinmarc/hdfs/v2"
	"github.com/colinmarc/hdfs/v2/hadoopconf"
	"google.golang.org/protobuf/encoding/protowire"
)

// Errors for protections that the library cannot read. The messages are signed, or encrypted by the
// ciphers of DIGEST-MD5. If the reader requests more than the rest of such a message, it loses
// bytes: it reports fewer than it received. It then reads an arbitrary value as a length. AES,
// which DataNodes negotiate when configured for it, has no such messages.
var (
	errSigned       = errors.New("the DataNodes sign what they send (dfs.data.transfer.protection=integrity), which stager cannot read: authentication, or privacy with dfs.encrypt.data.transfer.cipher.suites=AES/CTR/NoPadding, can be read")
	errDigestCipher = errors.New("the DataNodes encrypt by an old cipher, which stager cannot read: set dfs.encrypt.data.transfer.cipher.suites=AES/CTR/NoPadding on DataNodes and NameNodes")
)

// watch inspects the library's response to the challenge of a DataNode, which contains the
// negotiated protection.
func (c *conn) watch(sent []byte) error {
	if !bytes.Contains(sent, []byte("digest-uri=")) {
		return nil
	}
	c.private = bytes.Contains(sent, []byte("qop=auth-conf"))
	if bytes.Contains(sent, []byte("qop=auth-int")) {
		return errSigned
	}
	return nil
}

// cipherOption is the field with the cipher in the last handshake message of a DataNode.
const cipherOption = 4

// byAES inspects the last handshake message without consuming it.
func (c *conn) byAES() (bool, error) {
	head, err := c.buffered.Peek(1)
	if err != nil {
		return false, err
	}
	if head[0] >= 0x80 { // the length has at most two bytes
		if head, err = c.buffered.Peek(2); err != nil {
			return false, err
		}
	}
	size, n := binary.Uvarint(head)
	if n <= 0 {
		return false, nil
	}
	message, err := c.buffered.Peek(n + int(size))
	if err != nil {
		return false, err
	}
	for message = message[n:]; len(message) > 0; {
		number, _, length := protowire.ConsumeField(message)
		if length < 0 {
			return false, nil
		}
		if number == cipherOption {
			return true, nil
		}
		message = message[length:]
	}
	return false, nil
}

// weakest returns the weakest protection that a configuration accepts. The library would use the
// strongest one as the minimum, and then reject DataNodes that offer both.
func weakest(conf hadoopconf.HadoopConf) string {
	if strings.EqualFold(conf["dfs.encrypt.data.transfer"], "true") {
		return hdfs.DataTransferProtectionPrivacy
	}
	accepted := strings.FieldsFunc(strings.ToLower(conf["dfs.data.transfer.protection"]), func(r rune) bool { return r == ',' || r == ' ' })
	for _, p := range []string{hdfs.DataTransferProtectionAuthentication, hdfs.DataTransferProtectionIntegrity, hdfs.DataTransferProtectionPrivacy} {
		if slices.Contains(accepted, p) {
			return p
		}
	}
	return ""
}
