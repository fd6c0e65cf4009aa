package smb

import (
	"testing"
	"time"

	"github.com/cloudsoda/go-smb2"

	"github.com/stager-dev/stager/backends"
)

// impacket and some file servers have no file ids. They list files with id 0 but report another
// number for an open file. Every read then failed with "the file changed".
func TestReadOfAFileListedWithoutAnID(t *testing.T) {
	file := func(size int64, id uint64) *smb2.FileStat {
		return &smb2.FileStat{EndOfFile: size, LastWriteTime: time.Unix(1000, 0), FileId: id}
	}
	for _, tt := range []struct {
		listed, open *smb2.FileStat
		kind         backends.Kind // Unknown: the file is the right one
	}{
		{file(5, 0), file(5, 77), backends.Unknown},
		{file(5, 77), file(5, 0), backends.Unknown},
		{file(5, 0), file(5, 0), backends.Unknown},
		{file(5, 77), file(5, 77), backends.Unknown},
		{file(5, 77), file(5, 78), backends.Changed},
		{file(5, 0), file(6, 77), backends.Changed},
	} {
		r := &stream{key: "k", want: describe("k", tt.listed).Version}
		if err := r.compare(tt.open); (err == nil) != (tt.kind == backends.Unknown) || err != nil && backends.KindOf(err) != tt.kind {
			t.Errorf("listed as %s, open as %s: %v, want kind %v", r.want, describe("k", tt.open).Version, err, tt.kind)
		}
	}
}
