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
		listed, open := protocol{}.Version(attributes(tt.listed)), protocol{}.Version(attributes(tt.open))
		if same := (protocol{}).Same(open, listed); same != (tt.kind == backends.Unknown) {
			t.Errorf("listed as %s, open as %s: the same is %v, want kind %v", listed, open, same, tt.kind)
		}
	}
}
