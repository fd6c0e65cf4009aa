package hdfs

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/hdfs/internal/rpc"
)

// answer sends the response to a call: an exception, or without a class an empty success.
func answer(c net.Conn, call uint32, class string) error {
	fields := rpc.Fields{"callId": call, "status": protoreflect.EnumNumber(0)}
	if class != "" {
		fields = rpc.Fields{"callId": call, "status": protoreflect.EnumNumber(1), "exceptionClassName": class, "errorMsg": "no"}
	}
	header, err := rpc.New("hadoop.common.RpcResponseHeaderProto", fields)
	if err != nil {
		return err
	}
	var body strings.Builder
	if _, err := protodelim.MarshalTo(&body, header.Interface()); err != nil {
		return err
	}
	if class == "" {
		body.WriteByte(0) // an empty message
	}
	_, err = c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(body.Len())), body.String()...))
	return err
}

const (
	standby = "org.apache.hadoop.ipc.StandbyException"
	hangsUp = "hangs up"
	expired = "has no valid ticket" // the client
	active  = ""
)

// farm connects to NameNodes, each of which behaves as its entry says.
type farm struct {
	behavior map[string]string // an exception, or one of the above; no entry: cannot be reached
	dialled  []string
	calls    []string
}

func (f *farm) connect(address string) (*rpc.Conn, error) {
	f.dialled = append(f.dialled, address)
	behavior, ok := f.behavior[address]
	if !ok {
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	}
	if behavior == expired {
		return nil, backends.Errorf(backends.Permission, "open", "", "run kinit again")
	}
	here, there := net.Pipe()
	go func() {
		defer there.Close()
		_, _ = io.ReadFull(there, make([]byte, 7)) // an error shows below
		for call := uint32(0); ; call++ {
			var length [4]byte
			if _, err := io.ReadFull(there, length[:]); err != nil {
				return
			}
			if _, err := io.ReadFull(there, make([]byte, binary.BigEndian.Uint32(length[:]))); err != nil {
				return
			}
			if call == 0 {
				continue // who connects
			}
			if f.calls = append(f.calls, address); behavior == hangsUp || answer(there, call, behavior) != nil {
				return
			}
		}
	}()
	return rpc.Connect(here, rpc.Config{User: "trainer"})
}

func TestNameNodeIsSoughtUntilOneIsActive(t *testing.T) {
	for _, tt := range []struct {
		what     string
		behavior map[string]string
		dialled  []string
		kind     backends.Kind // of the first and the second call
		words    string
	}{
		{"the first", map[string]string{"a": active, "b": standby}, []string{"a"}, backends.NotExist, ""},
		{"the second", map[string]string{"a": standby, "b": active}, []string{"a", "b"}, backends.NotExist, ""},
		{"the third", map[string]string{"b": standby, "c": active}, []string{"a", "b", "c"}, backends.NotExist, ""},
		{"none", map[string]string{"a": standby, "b": standby, "c": standby}, []string{"a", "b", "c", "a", "b", "c"}, backends.Unavailable, "all are standbys"},
		{"none that can be reached", nil, []string{"a", "b", "c", "a", "b", "c"}, backends.Unavailable, "connection refused"},
		{"one that rejects", map[string]string{"a": "org.apache.hadoop.security.AccessControlException", "b": active}, []string{"a"}, backends.Permission, "no"},
		{"one for which there is no ticket", map[string]string{"a": expired, "b": active}, []string{"a", "a"}, backends.Permission, "run kinit again"},
		{"one in safe mode", map[string]string{"a": "org.apache.hadoop.hdfs.server.namenode.SafeModeException", "b": active}, []string{"a"}, backends.Unavailable, "safe mode"},
	} {
		f := &farm{behavior: tt.behavior}
		n := &namenode{addresses: []string{"a", "b", "c"}, connect: f.connect}
		for range 2 {
			_, err := n.status("/k")
			wantRefused(t, tt.what, explain(t.Context(), "stat", "k", err), tt.kind, tt.words)
		}
		if !slices.Equal(f.dialled, tt.dialled) {
			t.Errorf("%s: connected to %q, want %q", tt.what, f.dialled, tt.dialled)
		}
		n.drop()
	}
}

// An active NameNode may have executed a request whose response is lost. A rename that was sent
// twice would then fail.
func TestNameNodeRequestIsNotRepeated(t *testing.T) {
	f := &farm{behavior: map[string]string{"a": hangsUp, "b": active}}
	n := &namenode{addresses: []string{"a", "b"}, connect: f.connect}
	for _, want := range [][]string{{"a"}, {"a", "a"}} {
		if err := n.rename("/from", "/to", false); !errors.Is(err, io.EOF) {
			t.Errorf("got %v, want EOF", err)
		}
		if !slices.Equal(f.calls, want) || !slices.Equal(f.dialled, want) {
			t.Errorf("calls of %q by connections to %q, want %q", f.calls, f.dialled, want)
		}
	}
}

// A writer needs the NameNode again after an hour of data. A busy NameNode has closed the connection
// by then, and the whole file would have to be written again.
func TestNameNodeConnectionIsReplacedWhenUnused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &farm{behavior: map[string]string{"a": active}}
		n := &namenode{addresses: []string{"a"}, connect: f.connect}
		for _, step := range []struct {
			pause time.Duration
			want  int
		}{{0, 1}, {connectionLife, 1}, {connectionLife + time.Second, 2}, {time.Second, 2}} {
			time.Sleep(step.pause)
			if _, err := n.status("/k"); backends.KindOf(explain(t.Context(), "stat", "k", err)) != backends.NotExist {
				t.Errorf("after %v: %v", step.pause, err)
			}
			if len(f.dialled) != step.want {
				t.Errorf("after %v: %d connections, want %d", step.pause, len(f.dialled), step.want)
			}
		}
		n.drop()
	})
}
