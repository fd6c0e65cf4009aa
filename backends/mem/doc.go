// Package mem provides an in-memory store for tests. [New] creates a backend; wrap it with
// [backends.NewStore]:
//
//	store := backends.NewStore(mem.New(), "mem", backends.Options{})
//
// It provides every guarantee that a backend can give: reads are pinned to a version, commits are
// atomic, conditional creates and replacements are decided atomically, and checksums are reported.
// So a failure on top of it is not the store's fault. Package backends/conformance scripts faults
// around it (Faults). The backend opens no socket and starts no goroutine, so it works in the
// bubbles of testing/synctest.
//
// [Backend.Generate] creates objects of any size without using memory: their bytes are computed
// from the key on each read.
//
// The package is not in the product's registry.
package mem
