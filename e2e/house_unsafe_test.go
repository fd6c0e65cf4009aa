package e2e

import (
	"regexp"
	"testing"
)

// unsafeAllowed says by file why it needs the address of memory.
var unsafeAllowed = map[string]string{
	"backends/buffers.go":       "buffers for direct I/O begin at a page",
	"backends/sys/aio_linux.go": "the kernel takes asynchronous requests by address",
	"window/disk/direct.go":     "direct I/O needs buffers that begin at a page",
	"window/disk/speed.go":      "direct I/O needs buffers that begin at a page",
}

// reaching is what bypasses the type system: package unsafe, and the ways of reflect and of the
// linker to what another package keeps private.
var reaching = regexp.MustCompile(`"unsafe"|\breflect\.NewAt\(|\.UnsafePointer\(|\.UnsafeAddr\(|(?m:^//go:linkname\b)`)

// The HDFS store once called methods of a private field of its library. Any version of the library
// could have broken it without an error from the compiler.
func TestUnsafeIsUsedByListedFilesOnly(t *testing.T) {
	seen := make(map[string]bool)
	for _, p := range packages(t) {
		for name, text := range p.sources(t) {
			for _, found := range reaching.FindAllString(text, -1) {
				seen[name] = true
				if unsafeAllowed[name] == "" || found != `"unsafe"` {
					t.Errorf("%s uses %s; do without, or list it with a reason", name, found)
				}
			}
		}
	}
	for name := range unsafeAllowed {
		if !seen[name] {
			t.Errorf("the list allows package unsafe in %s, which does not use it", name)
		}
	}
}
