package s3

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// operation is a kind of request that carries a checksum.
type operation int

const (
	putOperation operation = iota
	createOperation
	partOperation
	completeOperation
	operations
)

// sumAnswers are the responses to requests of one operation with a checksum.
type sumAnswers struct {
	accepted atomic.Bool
	failed   atomic.Int32 // consecutive 500 responses
}

// withSum runs a request, with a checksum if want is set. In checksum mode auto, it repeats the
// request without one if the store refused the checksum, as far as refusesSum can tell. If that
// succeeds, later writes carry no checksum.
func (b *bucket) withSum(op operation, want bool, request func(sum bool) error) error {
	err := request(want)
	if !want || !b.sumsMayGo {
		return err
	}
	if err == nil {
		b.answers[op].accepted.Store(true)
		b.answers[op].failed.Store(0)
		return nil
	}
	if !b.refusesSum(op, err) {
		return err
	}
	refused := serverErrorOf(err)
	if err := request(false); err != nil {
		return err
	}
	b.dropSums("store rejects checksums, disabling them for further writes", refused)
	return nil
}

// refusesSum reports whether err may be the refusal of a checksum. That is a response that the
// request is invalid or unknown to the server, or the second 500 in a row for an operation that has
// not succeeded with a checksum before. Responses about credentials, the key, its condition, the
// space or the bytes have another cause.
func (b *bucket) refusesSum(op operation, err error) bool {
	a := serverErrorOf(err)
	switch a.code {
	case "NotImplemented", "InvalidArgument", "InvalidRequest", "MalformedXML":
		return true
	case "NoSuchUpload", "NoSuchBucket", "EntityTooSmall", "EntityTooLarge":
		return false
	}
	switch kind := a.kind(); {
	case a.status == 0 || a.page || a.status < 400:
		return false
	case kind == backends.Invalid || kind == backends.Unsupported:
		return a.status != http.StatusNotFound
	}
	return a.status == http.StatusInternalServerError && !b.answers[op].accepted.Load() && b.answers[op].failed.Add(1) > 1
}

// dropSums disables checksums of writes and logs it once.
func (b *bucket) dropSums(why string, refused serverError) {
	if b.sums.Swap(false) {
		b.log.Info(why, "bucket", b.name, "status", refused.status, "code", refused.code, "answer", objectstore.Shorten(refused.message))
	}
}

// completeWithSum completes an upload. If its parts have checksums and the store refuses the
// completion both with and without checksums, the upload can never be completed. The error then
// wraps backends.ErrStartOver, and later uploads carry no checksums.
func (u *upload) completeWithSum(ctx context.Context, summed bool, request func(ctx context.Context, sum bool) error) error {
	var with error
	err := u.b.withSum(completeOperation, summed, func(sum bool) error {
		err := request(ctx, sum)
		if sum {
			with = err
		}
		return err
	})
	if err == nil || !summed || !u.b.sumsMayGo || with == nil || with == err { //nolint:errorlint // whether the request was tried twice
		return err
	}
	a := serverErrorOf(err)
	if kind := a.kind(); a.status == 0 || a.code == "NoSuchUpload" || kind != backends.Invalid && kind != backends.Unsupported && a.status != http.StatusInternalServerError {
		return err
	}
	u.b.dropSums("store rejects an upload with checksums, sending it again without and disabling them", serverErrorOf(with))
	dropped := u.Drop(ctx) // even if another process could resume it
	return backends.Errorf(backends.Invalid, "commit", u.key, "%w: the store rejects its completion: %w", backends.ErrStartOver, errors.Join(u.b.sentence(a, err), dropped))
}
