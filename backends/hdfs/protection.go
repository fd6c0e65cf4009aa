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

// The library's reader loses bytes when it asks for more than is left of a message
// that is signed, or encrypted by the ciphers of DIGEST-MD5 itself: it is told of
// fewer than it got. What it then takes for a length may be anything. Encryption by
// AES, which DataNodes agree to when they are configured for it, has no messages.
var (
	errSigned       = errors.New("the DataNodes sign what they send (dfs.data.transfer.protection=integrity), which stager cannot read: authentication, or privacy with dfs.encrypt.data.transfer.cipher.suites=AES/CTR/NoPadding, can be read")
	errDigestCipher = errors.New("the DataNodes encrypt by an old cipher, which stager cannot read: set dfs.encrypt.data.transfer.cipher.suites=AES/CTR/NoPadding on DataNodes and NameNodes")
)

// watch looks for the library's answer to the DataNode's challenge, which says what
// they agree upon.
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

// cipherOption is the field that names the cipher in the last message of a
// DataNode's handshake.
const cipherOption = 4

// byAES looks at the last message of the handshake, and leaves it to be read.
func (c *conn) byAES() (bool, error) {
	head, err := c.buffered.Peek(1)
	if err != nil {
		return false, err
	}
	if head[0] >= 0x80 { // the length has two bytes, at most
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

// weakest is the least protection that a configuration takes. The library takes the
// strongest for the least, and then refuses DataNodes that offer both.
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
