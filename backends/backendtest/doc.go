// Package backendtest holds what tests of stores share: the contract of
// backends.Backend as tests, scripted faults, and contents made from a key.
package backendtest
