// Package fake is the common part of fakes of object stores: a server that can go down or silent,
// objects as files, multipart uploads and their listings, faults, and the control API for tests.
//
// A fake embeds [Server] and serves requests itself, so that each is as strict as its service. What
// is here knows no signature, no precondition and no error message of a service, except by [Store].
package fake
