package hdfs

import (
	"context"
	"slices"
	"testing"

	"github.com/colinmarc/hdfs/v2"

	"github.com/stager-dev/stager/backends"
)

// A symbolic link, which the library does not follow, was left out of listings in silence.
func TestListingNamesASymbolicLink(t *testing.T) {
	var got []backends.Skipped
	l := &lister{ctx: backends.WithSkipped(context.Background(), func(s backends.Skipped) { got = append(got, s) }), prefix: "data/"}
	const link = 3 // in Hadoop's protocol
	for key, want := range map[string]bool{"data/file": true, "data/link": false, "other/link": false} {
		st := new(hdfs.FileStatus)
		kind := st.GetFileType() + link - fileTypeDir // the library does not export the type
		if want {
			kind = isFile
		}
		st.FileType = &kind
		if l.wanted(key, st) != want {
			t.Errorf("%s: wanted is %t, want %t", key, !want, want)
		}
	}
	if want := []backends.Skipped{{Key: "data/link", What: "a symbolic link"}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
