package api

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stager-dev/stager/window"
)

// BenchmarkLeaseAndAckOverTheSocket measures the control plane: eight readers, each with its own
// connection, lease and acknowledge shards that are on disk. The file operations are included, so
// run it with TMPDIR in memory.
func BenchmarkLeaseAndAckOverTheSocket(b *testing.B) {
	h := newHouse(b, b.N, 1)
	for h.state(window.Ready) < b.N {
		time.Sleep(10 * time.Millisecond)
	}
	leaseAndAck(b, h.socket)
}

// BenchmarkSocketAlone is BenchmarkLeaseAndAckOverTheSocket with a server that does nothing: what
// net/http and the socket take of it.
func BenchmarkSocketAlone(b *testing.B) {
	socket := filepath.Join(b.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		b.Fatal(err)
	}
	answers := http.NewServeMux()
	answers.HandleFunc("POST /v1/inputs/{name}/lease", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"lease":"0123456789abcdef","path":"/data/ready/e0000-00000000-00000.tar","key":"00000.tar","size":1}`) // the reader misses it
	})
	answers.HandleFunc("POST /v1/leases/{lease}/ack", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	server := &http.Server{Handler: answers, ReadHeaderTimeout: time.Minute}
	b.Cleanup(func() { server.Close() })
	go server.Serve(listener) //nolint:errcheck // until it is closed
	leaseAndAck(b, socket)
}

// leaseAndAck makes b.N pairs of requests with eight readers, and reports their number per second.
func leaseAndAck(b *testing.B, socket string) {
	const readers = 8
	pairs := make(chan struct{}, b.N)
	for range b.N {
		pairs <- struct{}{}
	}
	close(pairs)
	var group sync.WaitGroup
	b.ResetTimer()
	for i := range readers {
		group.Go(func() {
			conn, err := net.Dial("unix", socket)
			if err != nil {
				b.Error(err)
				return
			}
			defer conn.Close()
			in := bufio.NewReader(conn)
			call := func(path string) (body []byte, err error) {
				if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: s\r\nStager-Bind: connection\r\nContent-Length: 0\r\n\r\n", path); err != nil {
					return nil, err
				}
				resp, err := http.ReadResponse(in, &http.Request{Method: "POST"})
				if err != nil {
					return nil, err
				}
				body, err = io.ReadAll(resp.Body)
				if err == nil && resp.StatusCode >= 300 {
					err = errors.New(resp.Status)
				}
				return body, err
			}
			for range pairs {
				var l LeaseResponse
				for l.Lease == "" {
					body, err := call(fmt.Sprintf("/v1/inputs/train/lease?reader=r%d", i))
					if err == nil && len(body) > 0 {
						err = json.Unmarshal(body, &l)
					}
					if err != nil {
						b.Error(err)
						return
					}
				}
				if _, err := call("/v1/leases/" + l.Lease + "/ack"); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
}

// BenchmarkLeaseIsFreeAfterAKill measures how long after a reader's SIGKILL another waiting reader
// gets its shard. The median is the result.
func BenchmarkLeaseIsFreeAfterAKill(b *testing.B) {
	h := newHouse(b, 4096, 1, func(c *window.Config) { c.Size, c.Epochs = 1, 0 }) // one at a time
	var took []time.Duration
	for b.Loop() {
		// A separate process holds the lease, sends an endless request on the same connection, and
		// is killed.
		cmd := exec.Command("curl", "-s", "--unix-socket", h.socket, "-H", bound, "-X", "POST", "http://s/v1/inputs/train/lease?reader=victim",
			"--next", "-s", "--unix-socket", h.socket, "-T", "-", "http://s/v1/inputs/train/cursor")
		endless, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			b.Fatal(err)
		}
		h.waitIdle(func() bool { return h.state(window.Leased) == 1 })
		if err := cmd.Process.Kill(); err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		l, err := h.win.Lease(b.Context(), window.LeaseRequest{Reader: "next", Wait: time.Minute})
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
		_ = cmd.Wait() // it was killed
		_ = endless.Close()
		if err := h.win.Ack(l.ID); err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-median")
}
