package hdfs

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/colinmarc/hdfs/v2"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/hdfs/internal/rpc"
)

// connectionLife is how long an unused connection is trusted. NameNodes close connections that were
// unused for longer (twice ipc.client.connection.maxidletime, 10 s), as Hadoop's own clients do.
const connectionLife = 8 * time.Second

// namenode sends requests to the active one of several NameNodes. The methods of the library lack
// what stager needs: a rename that does not replace, whether a file is being written, and listings
// that continue after a page. They also drop the NameNode's reason for a refusal.
type namenode struct {
	addresses []string
	connect   func(address string) (*rpc.Conn, error)

	at   int       // index of the address of conn, or of the next one to try
	conn *rpc.Conn // nil: none
	used time.Time // when conn was used last
}

// open connects to a NameNode. It may be a standby.
func (n *namenode) open() error { return n.try(func(*rpc.Conn) error { return nil }) }

// try calls f with a connection to each NameNode in turn, until one can be reached and is not a
// standby. It does not repeat a request that an active NameNode may have executed.
func (n *namenode) try(f func(*rpc.Conn) error) error {
	if time.Since(n.used) > connectionLife {
		n.drop()
	}
	var err error
	for range n.addresses {
		if n.conn == nil {
			n.conn, err = n.connect(n.addresses[n.at])
			var failed *backends.Error
			if errors.As(err, &failed) {
				return err // the login failed, as it would at all of them
			}
		}
		if n.conn != nil {
			err = f(n.conn)
			n.used = time.Now()
			if !isException(err, "StandbyException") {
				if n.conn.Broken() {
					n.drop()
				}
				return err
			}
		}
		n.drop()
		n.at = (n.at + 1) % len(n.addresses)
	}
	return fmt.Errorf("no available namenodes: %s", err.Error()) // as the library says it
}

// drop closes the connection, if there is one.
func (n *namenode) drop() {
	if n.conn != nil {
		_ = n.conn.Close() // all responses were read
		n.conn = nil
	}
}

// arguments are the fields of a request, by their names in Hadoop's protocol.
type arguments = rpc.Fields

// call sends a request and returns the response.
func (n *namenode) call(method string, args arguments) (resp protoreflect.Message, err error) {
	err = n.try(func(c *rpc.Conn) (err error) {
		resp, err = c.Call(method, args)
		return err
	})
	return resp, err
}

// get returns a message field of a response, or nil if it is not set.
func get(m protoreflect.Message, name protoreflect.Name) protoreflect.Message {
	f := m.Descriptor().Fields().ByName(name)
	if !m.Has(f) {
		return nil
	}
	return m.Get(f).Message()
}

// status returns the status of a path, or fs.ErrNotExist.
func (n *namenode) status(path string) (*hdfs.FileStatus, error) {
	resp, err := n.call("getFileInfo", arguments{"src": path})
	if err != nil {
		return nil, err
	}
	m := get(resp, "fs")
	if m == nil {
		return nil, fs.ErrNotExist
	}
	return m.Interface().(*hdfs.FileStatus), nil
}

// list returns a page of a directory and whether more follow. The page starts behind the name
// after, in byte order of the names. It returns fs.ErrNotExist if there is no such directory.
func (n *namenode) list(dir, after string) (page []*hdfs.FileStatus, more bool, err error) {
	resp, err := n.call("getListing", arguments{"src": dir, "startAfter": []byte(after), "needLocation": false})
	if err != nil {
		return nil, false, err
	}
	m := get(resp, "dirList")
	if m == nil {
		return nil, false, fs.ErrNotExist
	}
	fields := m.Descriptor().Fields()
	entries := m.Get(fields.ByName("partialListing")).List()
	page = make([]*hdfs.FileStatus, entries.Len())
	for i := range page {
		page[i] = entries.Get(i).Message().Interface().(*hdfs.FileStatus)
	}
	return page, m.Get(fields.ByName("remainingEntries")).Uint() > 0, nil
}

// beingWritten reports whether a file is open for writing.
func (n *namenode) beingWritten(path string) (bool, error) {
	resp, err := n.call("getBlockLocations", arguments{"src": path, "offset": uint64(0), "length": uint64(1)})
	if err != nil {
		return false, err
	}
	m := get(resp, "locations")
	if m == nil {
		return false, fs.ErrNotExist
	}
	return m.Get(m.Descriptor().Fields().ByName("underConstruction")).Bool(), nil
}

// rename renames a file atomically. If replace is true, it replaces an existing file.
func (n *namenode) rename(from, to string, replace bool) error {
	_, err := n.call("rename2", arguments{"src": from, "dst": to, "overwriteDest": replace})
	return err
}

// mkdirs creates a directory and its missing parents.
func (n *namenode) mkdirs(dir string) error {
	mode, err := rpc.New("hadoop.hdfs.FsPermissionProto", rpc.Fields{"perm": uint32(0o755)})
	if err != nil {
		return err
	}
	_, err = n.call("mkdirs", arguments{"src": dir, "masked": mode, "createParent": true})
	return err
}

// remove deletes a file or an empty directory. It returns nil if there is none.
func (n *namenode) remove(path string) error {
	_, err := n.call("delete", arguments{"src": path, "recursive": false})
	return err
}
