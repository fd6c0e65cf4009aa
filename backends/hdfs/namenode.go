package hdfs

import (
	"errors"
	"io/fs"
	"reflect"
	"strings"

	"github.com/colinmarc/hdfs/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// namenode sends requests directly over the NameNode connection of the library. The methods of the
// library lack what stager needs: a rename that does not replace, whether a file is being written,
// and listings that continue after a page. They also drop the NameNode's reason for a refusal.
type namenode struct{ conn executor }

// executor is the method of the library's NamenodeConnection that sends all requests.
type executor interface {
	Execute(method string, req, resp proto.Message) error
}

// namenodeOf extracts the connection from a client, where it is a private field. go.mod pins the
// version of the library, and a test fails if the field disappears.
func namenodeOf(c *hdfs.Client) (namenode, error) {
	if f := reflect.ValueOf(c).Elem().FieldByName("namenode"); f.IsValid() {
		if conn, ok := reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem().Interface().(executor); ok {
			return namenode{conn}, nil
		}
	}
	return namenode{}, errors.New("the NameNode connection was not found in this version of the HDFS library")
}

// arguments are the fields of a request, by their names in Hadoop's protocol.
type arguments map[protoreflect.Name]any

// call sends a request and returns the response.
func (n namenode) call(method string, args arguments) (protoreflect.Message, error) {
	message := func(suffix string) (protoreflect.Message, error) {
		name := "hadoop.hdfs." + strings.ToUpper(method[:1]) + method[1:] + suffix
		t, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
		if err != nil {
			return nil, err
		}
		return t.New(), nil
	}
	req, err := message("RequestProto")
	if err != nil {
		return nil, err
	}
	resp, err := message("ResponseProto")
	if err != nil {
		return nil, err
	}
	for name, value := range args {
		req.Set(req.Descriptor().Fields().ByName(name), protoreflect.ValueOf(value))
	}
	return resp, n.conn.Execute(method, req.Interface(), resp.Interface())
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
func (n namenode) status(path string) (*hdfs.FileStatus, error) {
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
func (n namenode) list(dir, after string) (page []*hdfs.FileStatus, more bool, err error) {
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
func (n namenode) beingWritten(path string) (bool, error) {
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
func (n namenode) rename(from, to string, replace bool) error {
	_, err := n.call("rename2", arguments{"src": from, "dst": to, "overwriteDest": replace})
	return err
}

// mkdirs creates a directory and its missing parents.
func (n namenode) mkdirs(dir string) error {
	perm, err := protoregistry.GlobalTypes.FindMessageByName("hadoop.hdfs.FsPermissionProto")
	if err != nil {
		return err
	}
	mode := perm.New()
	mode.Set(mode.Descriptor().Fields().ByName("perm"), protoreflect.ValueOf(uint32(0o755)))
	_, err = n.call("mkdirs", arguments{"src": dir, "masked": mode, "createParent": true})
	return err
}

// remove deletes a file or an empty directory. It returns nil if there is none.
func (n namenode) remove(path string) error {
	_, err := n.call("delete", arguments{"src": path, "recursive": false})
	return err
}
