package backends

import (
	"maps"
	"slices"
	"testing"
)

func TestNamesakesFindsCollidingKeys(t *testing.T) {
	for name, tt := range map[string]struct {
		keys []string
		want map[string]string
	}{
		"different":           {[]string{"a", "b", "a/b", "a.b", "a b", "a-b"}, nil},
		"once more":           {[]string{"a", "a"}, nil},
		"case":                {[]string{"A.txt", "a.txt", "a.TXT"}, map[string]string{"a.txt": "A.txt", "a.TXT": "A.txt"}},
		"case of a directory": {[]string{"D/x", "d/x", "d/y"}, map[string]string{"d/x": "D/x"}},
		"umlauts":             {[]string{"ÄRGER", "ärger", "a\u0308rger"}, map[string]string{"ärger": "ÄRGER", "a\u0308rger": "ÄRGER"}},
		"sharp s":             {[]string{"STRASSE", "straße"}, map[string]string{"straße": "STRASSE"}},
		"Greek":               {[]string{"ΣΊΣΥΦΟΣ", "σίσυφος"}, map[string]string{"σίσυφος": "ΣΊΣΥΦΟΣ"}},
		"dots":                {[]string{"a", "a.", "a. .", "b/c", "b./c"}, map[string]string{"a.": "a", "a. .": "a", "b./c": "b/c"}},
		"short names of DOS": {
			[]string{"Program Files/x", "PROGRA~1/x", "PROGRA~1/PROGRA~2.EXE", "a~b", "backup~"},
			map[string]string{"PROGRA~1/x": "", "PROGRA~1/PROGRA~2.EXE": ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Namesakes(slices.Values(tt.keys)); !maps.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
