package plan

import (
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stager-dev/stager/stager/unpack"
)

func TestNamesRefuseWhatIsNoPath(t *testing.T) {
	long := strings.Repeat("x", 255)
	for _, tt := range []struct{ key, reason string }{
		{"a", ""},
		{"a/b/c.tar", ""},
		{`back\slash`, ""},
		{"spaces and ünïcode", ""},
		{"...", ""},
		{".hidden/.x", ""},
		{"a/.stager/x", ""},
		{".stagerx", ""},
		{long + "/" + long, ""},
		{"", "empty"},
		{"..", `".."`},
		{"../x", `".."`},
		{"a/../../x", `".."`},
		{"a/..", `".."`},
		{".", `"."`},
		{"a/./b", `"."`},
		{"/etc/passwd", "slash"},
		{"a//b", "empty part"},
		{"a/", "empty part"},
		{"a\x00b", "0x00"},
		{"a\nb", "0x0a"},
		{"\x1b[2J", "0x1b"},
		{"a\x7f", "0x7f"},
		{"\xff\xfe", "UTF-8"},
		{long + "x", "255"},
		{"a/" + long + "x/b", "255"},
		{strings.Repeat("x/", 2047) + "yy", "4095"},
		{".stager", ".stager"},
		{".stager/LOCK", ".stager"},
	} {
		err := new(Names).Check(tt.key)
		if (err == nil) != (tt.reason == "") || err != nil && !strings.Contains(err.Error(), tt.reason) {
			t.Errorf("Check(%q) = %v, want an error with %q", tt.key, err, tt.reason)
		}
	}
}

func TestNamesRefuseTwoKeysOnOnePath(t *testing.T) {
	for _, tt := range []struct {
		keys []string
		bad  string // the key that is refused; "" for none
	}{
		{[]string{"a", "a-x", "a.b", "a0", "b/c"}, ""},
		{[]string{"a", "a/b"}, "a/b"},
		{[]string{"a", "a-x", "a-x-y", "a.b", "a/b"}, "a/b"},
		{[]string{"a", "a!", "a!/b"}, "a!/b"},
		{[]string{"a", "a!", "a!!", "a\"", "a/b"}, "a/b"},
		{[]string{"a-x", "a/b", "a/b-c", "a/b/c"}, "a/b/c"},
		{[]string{"a/b", "a/b.c/d", "a/bc/d", "a/c"}, ""},
		{[]string{"x/a", "x/a/b/c/d"}, "x/a/b/c/d"},
		{[]string{"b", "a"}, "a"},
		{[]string{"a", "a"}, "a"},
	} {
		var names Names
		var bad string
		for _, key := range tt.keys {
			if names.Check(key) != nil {
				bad = key
				break
			}
		}
		if bad != tt.bad {
			t.Errorf("%q: refused %q, want %q", tt.keys, bad, tt.bad)
		}
	}
}

func FuzzNamesAccept(f *testing.F) {
	f.Add("a\na-x\na/b")
	f.Add("../x\n./y\n/z\na//b\n.stager/x")
	f.Add("a\na!\na!!\na/b\nb\nb/c")
	f.Fuzz(func(t *testing.T, text string) {
		keys := strings.Split(text, "\n")
		slices.Sort(keys)
		var names Names
		accepted := map[string]bool{}
		for _, key := range keys {
			err := names.Check(key)
			clash := false
			for dir := path.Dir(key); dir != "." && dir != "/"; dir = path.Dir(dir) {
				clash = clash || accepted[dir]
			}
			if clash && err == nil {
				t.Errorf("%q: accepted %q below a file", keys, key)
			}
			if err != nil {
				// Only keys with a known problem are refused.
				if !clash && !accepted[key] && checkKey(key) == nil {
					t.Errorf("%q: refused %q: %v", keys, key, err)
				}
				continue
			}
			if !filepath.IsLocal(key) || path.Clean(key) != key || accepted[key] {
				t.Errorf("%q: accepted %q", keys, key)
			}
			accepted[key] = true
		}
	})
}

// Whatever archives become, no two accepted keys share a path, and nothing else is refused.
func FuzzUnpackedNamesShareNoPath(f *testing.F) {
	f.Add("a.tar\na.zip\na/b")
	f.Add("a\na.tar\na.tar.gz\na.tar.tar\na.tar/x\na/b.tar")
	f.Add("a.tar\na.x\na.x.tar\na.x/b\na/b\n.tar\n..tar\nb/.zip")
	f.Fuzz(func(t *testing.T, text string) {
		keys := strings.Split(text, "\n")
		slices.Sort(keys)
		names := Names{Unpack: true}
		var paths []string
		for i, key := range keys {
			path, format := unpack.Dir(key)
			if format == "" {
				path = key
			}
			clash := slices.ContainsFunc(paths, func(other string) bool {
				return path == other || strings.HasPrefix(path, other+"/") || strings.HasPrefix(other, path+"/")
			})
			bad := checkKey(key) != nil || CheckPath(path) != nil || i > 0 && key == keys[i-1]
			err := names.Check(key)
			if (err != nil) != (clash || bad) {
				t.Errorf("%q: %q is %v; of the paths %q it has one: %v, or none can be: %v", keys, key, err, paths, clash, bad)
			}
			if err == nil {
				paths = append(paths, path)
			}
		}
	})
}

func TestFlatNames(t *testing.T) {
	long := strings.Repeat("é", 200)
	for _, tt := range []struct{ key, want string }{
		{"0001.tar", "0001.tar"},
		{"a/b/0001.tar", "a%2Fb%2F0001.tar"},
		{"a%2Fb.tar", "a%252Fb.tar"},
		{strings.Repeat("x", 200), strings.Repeat("x", 200)},
		{long + "/1.tar", strings.Repeat("é", 30) + "%~b1946ac92492d2347c6235b4d2611184~" + strings.Repeat("é", 46) + "%2F1.tar"},
	} {
		got := FlatName(tt.key)
		if cut := strings.Index(got, "%~"); cut >= 0 {
			tt.want = tt.want[:cut+2] + got[cut+2:cut+34] + tt.want[cut+34:] // any 32 digits
		}
		if got != tt.want {
			t.Errorf("FlatName(%q) = %q, want %q", tt.key, got, tt.want)
		}
	}
}

func FuzzFlatNamesDiffer(f *testing.F) {
	f.Add("a/b", "a%2Fb")
	f.Add(strings.Repeat("a/", 150), strings.Repeat("a/", 151))
	f.Fuzz(func(t *testing.T, a, b string) {
		if checkKey(a) != nil || checkKey(b) != nil {
			return // without keys there are no names
		}
		x, y := FlatName(a), FlatName(b)
		if (x == y) != (a == b) {
			t.Errorf("FlatName(%q) = %q, FlatName(%q) = %q", a, x, b, y)
		}
		if len(x) > maxFlat || strings.Contains(x, "/") || checkKey("0-"+x) != nil {
			t.Errorf("FlatName(%q) = %q, which is no file name", a, x)
		}
	})
}
