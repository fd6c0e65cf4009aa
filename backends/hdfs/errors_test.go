package hdfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/colinmarc/hdfs/v2"

	"github.com/stager-dev/stager/backends"
)

// thrown is an exception of a NameNode.
type thrown struct{ class, message string }

func (e thrown) Method() string    { return "call" }
func (e thrown) Desc() string      { return "ERROR_APPLICATION" }
func (e thrown) Exception() string { return e.class }
func (e thrown) Message() string   { return e.message }
func (e thrown) Error() string     { return "call failed with ERROR_APPLICATION (" + e.class + ")" }

var _ hdfs.Error = thrown{}

func TestClassify(t *testing.T) {
	const (
		fsPackage   = "org.apache.hadoop.fs."
		hdfsPackage = "org.apache.hadoop.hdfs."
		ipcPackage  = "org.apache.hadoop.ipc."
	)
	for _, tt := range []struct {
		err   error
		kind  backends.Kind
		words string
	}{
		{thrown{"java.io.FileNotFoundException", "File does not exist: /k"}, backends.NotExist, "no such file"},
		{thrown{fsPackage + "FileAlreadyExistsException", ""}, backends.Exist, "has this name"},
		{thrown{"org.apache.hadoop.security.AccessControlException", "Permission denied: user=u, access=READ\n\tat java"}, backends.Permission, "access=READ"},
		{thrown{"org.apache.hadoop.security.authorize.AuthorizationException", "User: a is not allowed to impersonate b"}, backends.Permission, "impersonate"},
		{thrown{hdfsPackage + "protocol.NSQuotaExceededException", "The NameSpace quota is exceeded"}, backends.NoSpace, "quota"},
		{thrown{hdfsPackage + "protocol.DSQuotaExceededException", "The DiskSpace quota is exceeded"}, backends.NoSpace, "quota"},
		{thrown{hdfsPackage + "protocol.FSLimitException$MaxDirectoryItemsExceededException", ""}, backends.NoSpace, "entries"},
		{thrown{hdfsPackage + "protocol.FSLimitException$PathComponentTooLongException", ""}, backends.Invalid, "255"},
		{thrown{fsPackage + "ParentNotDirectoryException", ""}, backends.Invalid, "a parent of the key"},
		{thrown{fsPackage + "InvalidPathException", "Invalid path name"}, backends.Invalid, "Invalid path"},
		{thrown{hdfsPackage + "UnknownCryptoProtocolVersionException", ""}, backends.Unsupported, "encryption zone"},
		{thrown{ipcPackage + "RpcNoSuchMethodException", "Unknown method"}, backends.Unsupported, "Unknown method"},
		{thrown{hdfsPackage + "server.namenode.SafeModeException", ""}, backends.Unavailable, "safe mode"},
		{thrown{ipcPackage + "StandbyException", ""}, backends.Unavailable, "standby"},
		{thrown{ipcPackage + "RetriableException", "Server too busy"}, backends.Throttled, "busy"},
		{thrown{hdfsPackage + "server.namenode.LeaseExpiredException", "No lease"}, backends.Unavailable, "No lease"},
		{thrown{"org.apache.hadoop.security.token.SecretManager$InvalidToken", "expired"}, backends.Unavailable, "expired"},
		{thrown{"java.io.IOException", "File /k could only be written to 0 of the 1 minReplication nodes."}, backends.Unavailable, "no DataNode accepts"},
		{thrown{"java.lang.NullPointerException", "oh"}, backends.Unknown, "NullPointerException: oh"},
		{errors.New("no available namenodes: call failed (org.apache.hadoop.ipc.StandbyException)"), backends.Unavailable, "all are standbys"},
		{errors.New("no available namenodes: SASL handshake: KRB_AP_ERR_SKEW"), backends.Permission, "clocks"},
		{errors.New("no available namenodes: SASL handshake: sasl call failed with FATAL_UNAUTHORIZED (javax.security.sasl.SaslException)"), backends.Permission, "dfs.namenode.kerberos.principal"},
		{errors.New("no available namenodes: SASL handshake: KRB_AP_ERR_TKT_EXPIRED"), backends.Permission, "kinit"},
		{errors.New("no available namenodes: SASL handshake: EOF"), backends.Unavailable, "closed the connection during login"}, // killed during the handshake
		{errors.New("no available namenodes: SASL handshake: read tcp 10.0.0.1:1->10.0.0.2:2: read: connection reset by peer"), backends.Unavailable, "reset"},
		{errors.New("no available namenodes: SASL handshake: x"), backends.Permission, "SASL"},
		{errors.New("no available namenodes: dial tcp: refused"), backends.Unavailable, "refused"},
		{errors.New("no available datanodes"), backends.Unavailable, "no DataNode"},
		{errors.New("invalid checksum"), backends.Corrupt, "checksums"},
		{errors.New("read failed: ERROR_ACCESS_TOKEN ()"), backends.Unavailable, "TOKEN"},
		{&os.PathError{Op: "create", Path: "/k", Err: hdfs.ErrReplicating}, backends.Unavailable, "confirmed"},
		{&os.PathError{Op: "open", Path: "/k", Err: os.ErrNotExist}, backends.NotExist, "no such file"},
		{&os.PathError{Op: "open", Path: "/k", Err: os.ErrPermission}, backends.Permission, ""},
		{fs.ErrExist, backends.Exist, ""},
		{fmt.Errorf("x: %w", errWebPort), backends.Invalid, "8020"},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, backends.Unavailable, "too long"},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, backends.Unavailable, "reset"},
		{io.ErrUnexpectedEOF, backends.Unavailable, ""},
		{errors.New("something else"), backends.Unknown, "something else"},
	} {
		err := explain(context.Background(), "read", "k", tt.err)
		if got := backends.KindOf(err); got != tt.kind || !strings.Contains(err.Error(), tt.words) || !errors.Is(err, tt.err) {
			t.Errorf("%v: got kind %v, %q; want %v and %q", tt.err, got, err, tt.kind, tt.words)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if got := backends.KindOf(explain(ctx, "read", "k", io.EOF)); got != backends.Canceled {
		t.Errorf("after the context ended: kind %v, want canceled", got)
	}
}
