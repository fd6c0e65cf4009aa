// Package mem is a store in memory, for tests: [New] makes one, a
// [backends.Store] is put in front of it with [backends.NewStore].
//
// It keeps every promise that a backend can keep: reads are pinned to a version,
// commits are atomic, conditional creates and replacements are decided in one step,
// sums are told.
// So what fails over it is not the store's fault. Faults are scripted around it,
// by conformance.Faults. It opens no socket and starts no goroutine, so it works
// in the bubbles of testing/synctest.
//
// [Backend.Generate] makes objects of any size that take no memory: their bytes
// are made from the key while they are read.
//
// It is in no registry of the product.
package mem
