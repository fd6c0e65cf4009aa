package hdfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"syscall"

	"github.com/colinmarc/hdfs/v2"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
	"github.com/stager-dev/stager/backends/internal/kerberos"
)

// exceptions maps exceptions of the NameNode, by the last part of their Java class.
var exceptions = []struct {
	kind  backends.Kind
	names []string
	words string // message; "": the first line of the exception
}{
	{backends.NotExist, []string{"FileNotFoundException"}, "there is no such file or directory"},
	{backends.Exist, []string{"FileAlreadyExistsException"}, "a file or directory has this name"},
	{backends.Permission, []string{"AccessControlException", "AuthorizationException", "SnapshotAccessControlException"}, ""},
	{backends.NoSpace, []string{"NSQuotaExceededException", "DSQuotaExceededException", "QuotaByStorageTypeExceededException", "QuotaExceededException"}, ""},
	{backends.NoSpace, []string{"MaxDirectoryItemsExceededException"}, "the directory has as many entries as the NameNode allows"},
	{backends.Invalid, []string{"ParentNotDirectoryException"}, "a parent of the key is a file"},
	{backends.Invalid, []string{"PathComponentTooLongException"}, "the NameNode allows at most 255 bytes between two slashes"},
	{backends.Invalid, []string{"InvalidPathException", "HadoopIllegalArgumentException", "PathIsNotEmptyDirectoryException"}, ""},
	{backends.Unsupported, []string{"UnknownCryptoProtocolVersionException"}, "the directory is an encryption zone, whose files stager cannot write: choose another directory"},
	{backends.Unsupported, []string{"RpcNoSuchMethodException", "RpcNoSuchProtocolException", "UnsupportedOperationException", "UnresolvedLinkException"}, ""},
	{backends.Unavailable, []string{"SafeModeException"}, "the NameNode is in safe mode: it has just started, or an operator put it there (hdfs dfsadmin -safemode get)"},
	{backends.Unavailable, []string{"StandbyException", "ObserverRetryOnActiveException"}, "this NameNode is a standby, and no active one responds: configure all of them as a name service in HADOOP_CONF_DIR"},
	{backends.Unavailable, []string{"LeaseExpiredException", "AlreadyBeingCreatedException", "RecoveryInProgressException", "NotReplicatedYetException", "InvalidToken", "InvalidEncryptionKeyException"}, ""},
	{backends.Throttled, []string{"RetriableException"}, ""},
}

// phrases maps errors that the library or the NameNode identifies only by text. The first match
// wins. A test compares them with the library.
var phrases = []struct {
	kind          backends.Kind
	phrase, words string
}{
	{backends.Unavailable, "StandbyException", "no NameNode is active: all are standbys"},
	{backends.Permission, "kerberos authentication not supported by namenode", "the configuration requires Kerberos, but the NameNode does not support it"},
	{backends.Permission, "sasl call failed", "the NameNode rejects the ticket: its principal may differ (dfs.namenode.kerberos.principal, or ?namenode-principal=), its keytab may be outdated, or its clock wrong"},
	{backends.Unavailable, "SASL handshake: EOF", "the NameNode closed the connection during login"},
	{backends.Unavailable, "connection reset by peer", ""},
	{backends.Unavailable, "broken pipe", ""},
	{backends.Unavailable, "i/o timeout", "the server was silent for too long"},
	{backends.Permission, "SASL handshake", ""},
	{backends.Unavailable, "no available namenodes", ""},
	{backends.Permission, "negotiating data protection", "the DataNodes offer less protection than required (dfs.data.transfer.protection, or ?data-protection=)"},
	{backends.Unavailable, "no available datanodes", "no DataNode that has the block can be reached"},
	{backends.Corrupt, "invalid checksum", "the DataNodes send bytes that do not match their own checksums"},
	{backends.Unavailable, "could only be written to 0 of the", "no DataNode accepts the block: all are down or full"},
	{backends.Unavailable, "unexpected sequence number", "the NameNode's responses no longer match the requests"},
	{backends.Unavailable, "read failed: ", ""},
	{backends.Unavailable, "write failed: ", ""},
	{backends.Unavailable, "Ack error from datanode", ""},
	{backends.Unavailable, "invalid ack sequence number", ""},
	{backends.Unavailable, "invalid response from", ""},
	{backends.Unavailable, "replication in progress", "the DataNodes have not confirmed the last block"},
}

// classify returns the kind of a library error and a message that fits after the key. The message
// is "" if that of the error is good enough.
func classify(err error) (backends.Kind, string) {
	if errors.Is(err, context.Canceled) {
		return backends.Canceled, ""
	}
	var remote hdfs.Error
	if errors.As(err, &remote) {
		if strings.Contains(remote.Message(), "SIMPLE authentication is not enabled") {
			return backends.Permission, "the NameNode requires Kerberos: enable it with core-site.xml in HADOOP_CONF_DIR or ?namenode-principal="
		}
		class := remote.Exception()[strings.LastIndexAny(remote.Exception(), ".$")+1:]
		for _, e := range exceptions {
			for _, name := range e.names {
				if name == class {
					if e.words != "" {
						return e.kind, e.words
					}
					return e.kind, firstLine(remote.Message())
				}
			}
		}
		for _, p := range phrases {
			if strings.Contains(remote.Message(), p.phrase) {
				return p.kind, p.words
			}
		}
		return backends.Unknown, fmt.Sprintf("the NameNode returned %s: %s", class, firstLine(remote.Message()))
	}
	text := err.Error()
	if strings.Contains(text, "SASL handshake") {
		if kind, words := kerberos.Meaning(err); words != "" {
			return kind, words
		}
	}
	for _, p := range phrases {
		if strings.Contains(text, p.phrase) {
			return p.kind, p.words
		}
	}
	var op net.Error
	switch {
	case errors.Is(err, errWebPort):
		return backends.Invalid, ""
	case errors.Is(err, errSigned), errors.Is(err, errDigestCipher):
		return backends.Unsupported, ""
	case errors.Is(err, fs.ErrNotExist):
		return backends.NotExist, "there is no such file or directory"
	case errors.Is(err, fs.ErrExist):
		return backends.Exist, "a file or directory has this name"
	case errors.Is(err, fs.ErrPermission):
		return backends.Permission, ""
	case errors.Is(err, fs.ErrInvalid):
		return backends.Invalid, ""
	case errors.As(err, &op) && op.Timeout():
		return backends.Unavailable, "the server was silent for too long"
	case errors.As(err, &op), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.ErrClosedPipe),
		errors.Is(err, net.ErrClosed), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return backends.Unavailable, ""
	}
	return backends.Unknown, ""
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return strings.TrimSpace(line)
}

// explain converts a library error to a backends.Error. If ctx has ended, it returns the cause of
// that instead of its consequences.
func explain(ctx context.Context, op, key string, err error) error {
	var done *backends.Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	if err := fileshare.Ended(ctx, op, key); err != nil {
		return err
	}
	kind, words := classify(err)
	if words != "" {
		err = backends.InWords(words, err)
	}
	return &backends.Error{Op: op, Key: key, Kind: kind, Err: err}
}
