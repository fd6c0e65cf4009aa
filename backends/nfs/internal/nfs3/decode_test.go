package nfs3

import (
	"bytes"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv3"

	"github.com/stager-dev/stager/backends/nfs/internal/remote"
	"github.com/stager-dev/stager/backends/nfs/internal/rpc"
)

// encode returns what generated code writes for v.
func encode(t testing.TB, v io.WriterTo) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := v.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

var attributes = nfsv3.PostOpAttr_TRUE{Attributes: nfsv3.Fattr3{
	Type: nfsv3.NF3REG, Mode: 1, Nlink: 2, Uid: 3, Gid: 4, Size: 1 << 40, Used: 5, Rdev: nfsv3.Specdata3{Specdata1: 6, Specdata2: 7},
	Fsid: 8, Fileid: 9, Atime: nfsv3.Nfstime3{Seconds: 10, Nseconds: 11}, Mtime: nfsv3.Nfstime3{Seconds: 12, Nseconds: 13},
	Ctime: nfsv3.Nfstime3{Seconds: 14, Nseconds: 15},
}}

var want = remote.Attr{Type: remote.Regular, Size: 1 << 40, FileID: 9, ModTime: time.Unix(12, 13), Change: 14e9 + 15}

func reading(t testing.TB, data string) []byte {
	return encode(t, &nfsv3.Read3resok{FileAttributes: &attributes, Count: uint32(len(data)), Eof: true, Data: []byte(data)})
}

func directory(t testing.TB) []byte {
	return encode(t, &nfsv3.Readdirplus3resok{
		DirAttributes: &nfsv3.PostOpAttr_FALSE{}, Cookieverf: [8]byte{1}, Reply: nfsv3.Dirlistplus3{
			Entries: &nfsv3.Entryplus3{
				Fileid: 9, Name: "one", Cookie: 3, NameAttributes: &attributes, NameHandle: &nfsv3.PostOpFh3_FALSE{},
				Nextentry: &nfsv3.Entryplus3{
					Fileid: 10, Name: "zwolf", Cookie: 4, NameAttributes: &nfsv3.PostOpAttr_FALSE{},
					NameHandle: &nfsv3.PostOpFh3_TRUE{Handle: nfsv3.NfsFh3{Data: []byte("handle")}},
				},
			}, Eof: true,
		},
	})
}

// The hand-written decoders read what generated code writes.

func TestResponsesByHand(t *testing.T) {
	for _, data := range []string{"", "x", "bytes", "12345678"} {
		b, known, err := decodeRead(rpc.NewDecoder(reading(t, data)), 1<<20)
		if err != nil || !known || string(b.Data) != data || !b.EOF || b.Attr != want {
			t.Errorf("a read of %q = %+v, %v", data, b, err)
		}
	}
	var names []string
	var verifier [8]byte
	var cookie uint64
	whole := directory(t)
	done, err := decodeEntries(rpc.NewDecoder(whole), true, &verifier, &cookie, func(e remote.Entry, known bool) error {
		if known != (e.Name == "one") || known && e.Attr != want {
			t.Errorf("%q has attributes %+v (%v)", e.Name, e.Attr, known)
		}
		names = append(names, e.Name)
		return nil
	})
	if err != nil || !done || cookie != 4 || !slices.Equal(names, []string{"one", "zwolf"}) {
		t.Errorf("a directory = %q, up to %d, %v, %v", names, cookie, done, err)
	}
	for n := range whole {
		if _, err := decodeEntries(rpc.NewDecoder(whole[:n]), true, &verifier, &cookie, func(remote.Entry, bool) error { return nil }); err == nil {
			t.Errorf("the first %d bytes of %d are taken for the whole", n, len(whole))
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(reading(f, "some bytes"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if b, _, err := decodeRead(rpc.NewDecoder(data), 1<<20); err == nil && len(b.Data) > len(data) {
			t.Errorf("%d bytes come of %d", len(b.Data), len(data))
		}
	})
}

func FuzzEntries(f *testing.F) {
	f.Add(directory(f))
	f.Fuzz(func(t *testing.T, data []byte) {
		var verifier [8]byte
		var cookie uint64
		n := 0
		_, err := decodeEntries(rpc.NewDecoder(data), true, &verifier, &cookie, func(remote.Entry, bool) error { n++; return nil })
		if err == nil && 24*n > len(data) {
			t.Errorf("%d names come of %d bytes", n, len(data))
		}
	})
}
