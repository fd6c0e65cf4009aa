package group

import (
	"fmt"
	"strings"
	"testing"
)

// A node whose index is outside the count of nodes neither saves nor restores, and a record of
// such a node is invalid.
func TestNodeIndexOutsideCountIsRefused(t *testing.T) {
	for _, tt := range []struct {
		index, count int
		want         string // empty: valid
	}{
		{0, 1, ""},
		{1, 2, ""},
		{2, 2, "index: want 0 to 1"},
		{7, 2, "index: want 0 to 1"},
		{-1, 2, "index: want 0 to 1"},
		{0, 0, "count of nodes"},
		{0, -1, "count of nodes"},
		{0, maxCount + 1, "count of nodes"},
	} {
		t.Run(fmt.Sprintf("%d of %d", tt.index, tt.count), func(t *testing.T) {
			_, saves := New(Config{Job: "job", Index: tt.index, Count: tt.count, Boot: "boot"})
			_, restores := NewRestorer(RestoreConfig{Job: "job", Index: tt.index, Count: tt.count})
			_, record := DecodeMember(encode(Member{
				Header: Header{APIVersion: apiVersion, Kind: kindMember}, Job: "job", Index: tt.index, Count: tt.count, Boot: "boot",
			}))
			for what, err := range map[string]error{"New": saves, "NewRestorer": restores, "DecodeMember": record} {
				if got := fmt.Sprint(err); (err == nil) != (tt.want == "") || !strings.Contains(got, tt.want) {
					t.Errorf("%s: got error %v, want %q", what, err, tt.want)
				}
			}
		})
	}
}
