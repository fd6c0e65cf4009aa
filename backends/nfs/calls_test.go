package nfs

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv4"

	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/nfs/internal/nfstest"
)

// LINK had given a file its key when the REMOVE of its temporary name, in the same request, was
// refused: the upload failed, and the object was there. Here each operation of an upload is refused, or
// fails once.
func TestUploadsWithAnOperationThatFails(t *testing.T) {
	for name, status := range map[string]nfsv4.Nfsstat4{
		"denied": nfsv4.NFS4ERR_ACCESS, "full": nfsv4.NFS4ERR_NOSPC, "failing": nfsv4.NFS4ERR_IO, "delayed": nfsv4.NFS4ERR_DELAY,
	} {
		t.Run(name, func(t *testing.T) {
			eachVersion(t, func(t *testing.T, vers string) {
				conformance.FailingCalls(t, func(use func(conformance.TB, conformance.Scripted)) {
					synctest.Test(t, func(t *testing.T) {
						s := nfstest.New()
						s.Mkdir("data")
						var calls, fails atomic.Int64
						s.EachOp = func(int) (f nfstest.Fault) {
							if calls.Add(1) == fails.Load() {
								f.Status = status
							}
							return f
						}
						store, err := openFake(t.Context(), s, "data", vers+"&rsize=4KiB")
						if err != nil {
							t.Fatal(err)
						}
						use(t, conformance.Scripted{
							Store:  store,
							FailAt: func(n int) { calls.Store(0); fails.Store(int64(n)) },
							Calls:  func() int { return int(calls.Load()) },
							Names:  func() []string { return s.Names("data") },
						})
						if err := store.Close(); err != nil {
							t.Error(err)
						}
						time.Sleep(time.Minute) // until files are closed in the background
					})
				})
			})
		})
	}
}
