// Package frameworks tests checkpoints of the libraries that write them. record.py records
// what a library does to the disk; the tests of stager/checkpoint replay the recordings in
// testdata. The tests here run the libraries themselves, kill them, and have them load what
// was restored.
package frameworks
