package main

import (
	"os"
	"runtime/debug"
)

// garbage is how much may lie beside what is in use, in percent. Nearly all of that is
// buffers, which cost a collection nothing, and memory is the trainer's.
const garbage = 50

// spareMemory keeps garbage little, unless GOGC says otherwise.
func spareMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
}
