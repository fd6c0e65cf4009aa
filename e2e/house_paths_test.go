package e2e

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sharing are packages that work in directories where others may write: other containers of
// the pod, other users, other tools.
var sharing = []string{
	"window", "window/disk", "stager", "stager/checkpoint", "stager/download", "stager/preemption", "stager/sample", "stager/api", "stager/unpack",
	"backends/sys",
}

// byPath is what opens or changes a file by its path alone, which follows links, and waits
// at a FIFO; and what opens a root's own directory other than by disk.OpenDir, whose errors
// name it.
var byPath = regexp.MustCompile(`\bos\.(Open|OpenFile|OpenRoot|ReadFile|ReadDir|DirFS|Create|CreateTemp|WriteFile|Rename|Remove|RemoveAll|Link|Symlink|Chmod|Chown|Chtimes|Truncate|Mkdir|MkdirAll|MkdirTemp)\(|\b[rR]oot(\(\))?\.FS\(\)|\b[rR]oot\.(ReadFile|WriteFile|Create|OpenFile|Open)\(|\w+(\(\))?\.Open\("\."\)`)

// pathsAllowed says by file which of these calls stand there, and why they may.
var pathsAllowed = map[string]struct {
	calls  []string
	reason string
}{
	"window/disk/shared.go":               {[]string{"os.OpenRoot("}, "it opens a path as far as others can change nothing on it"},
	"window/disk/fs.go":                   {[]string{"root.OpenFile(", "root.Open("}, "it opens without blocking, and lists directories alone; and the root itself"},
	"window/disk/small.go":                {[]string{"os.OpenRoot(", "root.OpenFile("}, "the directory is the one that was named; what is in it is opened without following a link"},
	"window/disk/state.go":                {[]string{"root.OpenFile("}, "directories alone, and none out of the directory"},
	"backends/sys/boot_linux.go":          {[]string{"os.ReadFile("}, "a file of the kernel's"},
	"backends/sys/process_linux.go":       {[]string{"os.ReadFile("}, "a file of the kernel's"},
	"backends/sys/stat_linux.go":          {[]string{"root.OpenFile("}, "a trainer's file, opened for its birth time alone (O_PATH), without following a link"},
	"backends/sys/sync_darwin.go":         {[]string{"root.OpenFile("}, "what was just written, opened without following a link or blocking, and synced"},
	"window/disk/speed.go":                {[]string{"os.MkdirAll(", "os.MkdirTemp(", "os.RemoveAll("}, "bench measures a disk that a person names, in a directory of its own"},
	"stager/checkpoint/push.go":           {[]string{"os.OpenRoot("}, "what a person names is what is pushed"},
	"stager/checkpoint/dirwatch_linux.go": {[]string{"root.OpenFile("}, "a directory of the trainer's, opened without following a link or blocking, and not read"},
	"stager/checkpoint/copy.go":           {[]string{"root.OpenFile("}, "a new file, in a directory of its own"},
	"stager/checkpoint/ioclass.go": {
		[]string{"os.ReadDir(", "os.ReadFile("}, "files of the kernel's",
	},
	"stager/checkpoint/mirror.go":       {[]string{"root.OpenFile("}, "files of an output, opened without following a link or blocking"},
	"stager/checkpoint/pushfiles.go":    {[]string{"os.MkdirAll(", "os.OpenRoot("}, "a directory of this user alone"},
	"stager/checkpoint/readplain.go":    {[]string{"root.OpenFile("}, "a trainer's file, opened without blocking"},
	"stager/checkpoint/restore_file.go": {[]string{"root.OpenFile("}, "a new file, in a directory of its own"},
	"stager/checkpoint/site.go":         {[]string{"root.WriteFile("}, "a new file, in a directory of its own"},
	"stager/checkpoint/snapshot.go": {
		[]string{"root.OpenFile("}, "a new file, in a directory of its own",
	},
	"stager/checkpoint/walk.go":       {[]string{"root.OpenFile("}, "a trainer's file, opened without blocking"},
	"stager/preemption/preemption.go": {[]string{"os.OpenFile("}, "Kubernetes makes such files by links; it does not block, and nothing of the file gets out"},
}

// What is opened by a path in a shared directory is whatever somebody has put there. So
// these packages open files by package window/disk, or stand in the list with a reason.
func TestPathsAreOpenedByListedFilesOnly(t *testing.T) {
	seen := make(map[string][]string)
	for _, p := range packages(t) {
		if !slices.Contains(sharing, p.name()) {
			continue
		}
		for name, text := range p.sources(t) {
			for i, line := range strings.Split(text, "\n") {
				code, _, _ := strings.Cut(line, "//")
				for _, call := range byPath.FindAllString(code, -1) {
					if seen[name] = append(seen[name], call); !slices.Contains(pathsAllowed[name].calls, call) {
						t.Errorf("%s:%d: %s) follows links or waits at a FIFO that others put there; use window/disk, or list it with a reason", name, i+1, call)
					}
				}
			}
		}
	}
	for name, allowed := range pathsAllowed {
		for _, call := range allowed.calls {
			if !slices.Contains(seen[name], call) || allowed.reason == "" {
				t.Errorf("the list allows %s) in %s, where it is not, or gives no reason", call, name)
			}
		}
	}
}
