package nfs4

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv4"

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

// The hand-written code writes and reads the same as generated code.

func TestRequestsByHand(t *testing.T) {
	c := &Client{}
	q := c.newCompound(0)
	q.walk(place{rest: []string{"a", "bcdef"}})
	q.walk(place{handle: handle("handle")})
	q.getAttr()
	q.read(stateid{1, 2, 3}, 1<<33, 77)
	copy(q.write(stateid{9}, 5, 3), "xyz")
	q.close(current)
	q.setSlot(&session{id: nfsv4.Sessionid4{8: 1}, highest: 9}, &slot{id: 3, seq: 7})

	bits := []uint32{attributes[0] &^ (1 << nfsv4.FATTR4_RDATTR_ERROR), attributes[1]}
	id := func(s stateid) (out nfsv4.Stateid4) {
		out.Seqid = binary.BigEndian.Uint32(s[:])
		copy(out.Other[:], s[4:])
		return out
	}
	want := encode(t, &nfsv4.Compound4args{Minorversion: 1, Argarray: []nfsv4.NfsArgop4{
		&nfsv4.NfsArgop4_OP_SEQUENCE{Opsequence: nfsv4.Sequence4args{SaSessionid: nfsv4.Sessionid4{8: 1}, SaSequenceid: 7, SaSlotid: 3, SaHighestSlotid: 9}},
		&nfsv4.NfsArgop4_OP_PUTROOTFH{},
		&nfsv4.NfsArgop4_OP_LOOKUP{Oplookup: nfsv4.Lookup4args{Objname: "a"}},
		&nfsv4.NfsArgop4_OP_LOOKUP{Oplookup: nfsv4.Lookup4args{Objname: "bcdef"}},
		&nfsv4.NfsArgop4_OP_PUTFH{Opputfh: nfsv4.Putfh4args{Object: []byte("handle")}},
		&nfsv4.NfsArgop4_OP_GETATTR{Opgetattr: nfsv4.Getattr4args{AttrRequest: bits}},
		&nfsv4.NfsArgop4_OP_READ{Opread: nfsv4.Read4args{Stateid: id(stateid{1, 2, 3}), Offset: 1 << 33, Count: 77}},
		&nfsv4.NfsArgop4_OP_WRITE{Opwrite: nfsv4.Write4args{Stateid: id(stateid{9}), Offset: 5, Stable: nfsv4.UNSTABLE4, Data: []byte("xyz")}},
		&nfsv4.NfsArgop4_OP_CLOSE{Opclose: nfsv4.Close4args{OpenStateid: id(current)}},
	}})
	if got := q.Bytes()[q.countAt-8:]; !bytes.Equal(got, want) {
		t.Errorf("by hand:\n%x\ngenerated:\n%x", got, want)
	}
}

// attrs returns a fattr4 with all requested attributes.
func attrs(a remote.Attr) nfsv4.Fattr4 {
	var v []byte
	v = binary.BigEndian.AppendUint32(v, uint32(a.Type))
	v = binary.BigEndian.AppendUint64(v, a.Change)
	v = binary.BigEndian.AppendUint64(v, uint64(a.Size))
	v = binary.BigEndian.AppendUint32(v, 0)
	v = binary.BigEndian.AppendUint64(v, a.FileID)
	v = binary.BigEndian.AppendUint64(v, uint64(a.ModTime.Unix()))
	v = binary.BigEndian.AppendUint32(v, uint32(a.ModTime.Nanosecond()))
	return nfsv4.Fattr4{Attrmask: attributes, AttrVals: v}
}

var sample = remote.Attr{Type: remote.Regular, Size: 1 << 40, FileID: 7, Change: 1<<63 + 1, ModTime: time.Unix(1_700_000_000, 5)}

// directory returns a READDIR response with two names.
func directory(t testing.TB) []byte {
	return encode(t, &nfsv4.Readdir4resok{Cookieverf: [8]byte{1}, Reply: nfsv4.Dirlist4{
		Entries: &nfsv4.Entry4{Cookie: 3, Name: "one", Attrs: attrs(sample), Nextentry: &nfsv4.Entry4{
			Cookie: 9, Name: "zwölf", Attrs: attrs(remote.Attr{Type: remote.Directory, ModTime: time.Unix(0, 0)}),
		}}, Eof: true,
	}})
}

// reading returns a complete response to a read.
func reading(t testing.TB, data string) []byte {
	return encode(t, &nfsv4.Compound4res{Resarray: []nfsv4.NfsResop4{
		&nfsv4.NfsResop4_OP_SEQUENCE{Opsequence: &nfsv4.Sequence4res_NFS4_OK{}},
		&nfsv4.NfsResop4_OP_PUTFH{},
		&nfsv4.NfsResop4_OP_READ{Opread: &nfsv4.Read4res_NFS4_OK{Resok4: nfsv4.Read4resok{Eof: true, Data: []byte(data)}}},
		&nfsv4.NfsResop4_OP_GETATTR{Opgetattr: &nfsv4.Getattr4res_NFS4_OK{Resok4: nfsv4.Getattr4resok{ObjAttributes: attrs(sample)}}},
	}})
}

func decodeReading(data []byte) (remote.Block, error) {
	r := begin(&rpc.Reply{Decoder: *rpc.NewDecoder(data)})
	if err := r.next(nfsv4.OP_SEQUENCE); err != nil {
		return remote.Block{}, err
	}
	r.Fixed(16 + 5*4)
	if err := r.next(nfsv4.OP_PUTFH); err != nil {
		return remote.Block{}, err
	}
	return r.read(1<<20, new(rpc.Place))
}

func TestResponsesByHand(t *testing.T) {
	for _, data := range []string{"", "x", "bytes", "12345678"} {
		b, err := decodeReading(reading(t, data))
		if err != nil || string(b.Data) != data || !b.EOF || b.Attr != sample {
			t.Errorf("a read of %q = %+v, %v", data, b, err)
		}
	}
	whole := reading(t, "bytes")
	for n := range whole {
		if _, err := decodeReading(whole[:n]); err == nil {
			t.Errorf("the first %d bytes of %d are taken for the whole", n, len(whole))
		}
	}
	var names []string
	var verifier [8]byte
	var cookie uint64
	done, err := decodeEntries(rpc.NewDecoder(directory(t)), &verifier, &cookie, func(e remote.Entry) error {
		names = append(names, e.Name)
		return nil
	})
	if err != nil || !done || cookie != 9 || verifier != [8]byte{1} || !slices.Equal(names, []string{"one", "zwölf"}) {
		t.Errorf("a directory = %q, up to %d, %v, %v", names, cookie, done, err)
	}
}

func TestErrorsOfOneOperation(t *testing.T) {
	answer := encode(t, &nfsv4.Compound4res{Status: nfsv4.NFS4ERR_NOENT, Resarray: []nfsv4.NfsResop4{
		&nfsv4.NfsResop4_OP_SEQUENCE{Opsequence: &nfsv4.Sequence4res_NFS4_OK{}},
		&nfsv4.NfsResop4_OP_PUTFH{Opputfh: nfsv4.Putfh4res{Status: nfsv4.NFS4ERR_NOENT}},
	}})
	_, err := decodeReading(answer)
	if remote.StatusOf(err) != remote.NoEnt || err.Error() != "PUTFH returned NFS4ERR_NOENT" {
		t.Errorf("got %v", err)
	}
	r := begin(&rpc.Reply{Decoder: *rpc.NewDecoder(encode(t, &nfsv4.Compound4res{Status: nfsv4.NFS4ERR_MINOR_VERS_MISMATCH}))})
	if err := r.next(nfsv4.OP_EXCHANGE_ID); remote.StatusOf(err) != remote.MinorVersion {
		t.Errorf("an answer without operations: %v", err)
	}
}

func FuzzEntries(f *testing.F) {
	f.Add(directory(f))
	f.Fuzz(func(t *testing.T, data []byte) {
		var verifier [8]byte
		var cookie uint64
		n := 0
		_, err := decodeEntries(rpc.NewDecoder(data), &verifier, &cookie, func(remote.Entry) error { n++; return nil })
		if err == nil && 24*n > len(data) {
			t.Errorf("%d names come of %d bytes", n, len(data))
		}
	})
}

func FuzzRead(f *testing.F) {
	f.Add(reading(f, "some bytes"))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := decodeReading(data)
		if err == nil && len(b.Data) > len(data) {
			t.Errorf("%d bytes come of %d", len(b.Data), len(data))
		}
	})
}
