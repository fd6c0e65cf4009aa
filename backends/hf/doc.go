// Package hf reads repositories of the Hugging Face Hub.
//
//	hf://org/model/                       the default branch of a model
//	hf://org/model@v1.0/onnx/             a directory of a tag, branch or commit
//	hf://datasets/org/name@refs/pr/3/     a pull request of a dataset
//	hf://spaces/org/name/app.py           a file of a space
//
// [Scheme] lists the parameters. Nothing is ever written.
//
// # Versions
//
// A revision is resolved to its commit when the store is opened, and everything is read of that
// commit. So a run never mixes revisions. The version of an object is its Git blob, or the SHA-256 of
// a large file.
//
// # Reading
//
// The Hub redirects the download of a large file to a signed location, which gets no token. The
// location serves all ranges of the file until the server rejects it; then a new one is requested.
// Large files have a SHA-256, which becomes the checksum of the object. Small files have the SHA-1
// of their Git blob, against which this package compares them before it returns a byte.
//
// After a status 429 no request is sent until Retry-After has passed.
//
// # Credentials
//
// The token is the first of: the file HF_TOKEN in Options.Secrets, the variable of that name, the
// file that HF_TOKEN_PATH names, $HF_HOME/token, and ~/.cache/huggingface/token, where "hf auth
// login" writes it. After the Hub has rejected it, it is read again. HF_ENDPOINT is the address of
// the Hub or a mirror, which alone gets the token.
package hf
