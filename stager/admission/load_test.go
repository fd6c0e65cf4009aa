package admission

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// podsPerSecond is the rate at which a cluster creates pods when a large job starts.
const podsPerSecond = 200

// large returns a pod of realistic size: the fields that the API server fills in, and the variables
// and mounts that programs generate.
func large() string {
	var env, volumes, mounts []string
	for i := range 40 {
		env = append(env, fmt.Sprintf(`{"name":"VARIABLE_%d","value":"a value of some length, such as a host list %d"}`, i, i))
	}
	for i := range 6 {
		volumes = append(volumes, fmt.Sprintf(`{"name":"v%d","configMap":{"name":"config-%d","defaultMode":420}}`, i, i))
		mounts = append(mounts, fmt.Sprintf(`{"name":"v%d","mountPath":"/etc/config-%d","readOnly":true}`, i, i))
	}
	pod := podWith(asking + `,"stager.dev/out.ckpt":"/out -> s3://b/runs/{job}/{index}/"`)
	pod = strings.Replace(pod, `{"name":"A","value":"1"}`, strings.Join(env, ","), 1)
	pod = strings.Replace(pod, `{"name":"token","mountPath"`, strings.Join(mounts, ",")+`,{"name":"token","mountPath"`, 1)
	return strings.Replace(pod, `{"name":"token","emptyDir"`, strings.Join(volumes, ",")+`,{"name":"token","emptyDir"`, 1)
}

// BenchmarkLoad sends pods one by one, at a steady rate, over TLS and HTTP/1.1, as the API server
// does. The latency is measured from the scheduled time of a pod to its response. The results are
// the median, the 99th percentile and the maximum.
//
//	GOGC=400 go test -run - -bench Load -benchtime 4000x ./stager/admission
func BenchmarkLoad(b *testing.B) {
	some := httptest.NewTLSServer(nil) // for its certificate
	defer some.Close()
	s := newServer()
	s.Certificates = &fixed{cert: &some.TLS.Certificates[0]}
	ctx, end := context.WithCancel(b.Context())
	reviews, probes := listener(b), listener(b)
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, reviews, probes) }()

	pool := x509.NewCertPool()
	pool.AddCert(some.Certificate())
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "example.com"}, MaxIdleConnsPerHost: 25, // as in client-go
	}}
	url := "https://" + reviews.Addr().String() + "/mutate"
	body := reviewOf(b, large(), nil)
	b.SetBytes(int64(len(body)))
	times := make([]time.Duration, b.N)
	errs := make([]error, b.N)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var group sync.WaitGroup
	b.ResetTimer()
	start := time.Now()
	for i := range b.N {
		due := start.Add(time.Duration(i) * time.Second / podsPerSecond)
		time.Sleep(time.Until(due))
		group.Go(func() {
			errs[i] = ask(client, url, body)
			times[i] = time.Since(due)
		})
	}
	group.Wait()
	b.StopTimer()
	runtime.ReadMemStats(&after)
	for _, err := range errs {
		if errors.Is(err, errLate) {
			b.Fatalf("%v; the machine is too busy for %d pods per second, so that the requests of this benchmark pile up; measure when it is idle", err, podsPerSecond)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	end()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	slices.Sort(times)
	b.ReportMetric(ms(times[b.N/2]), "p50-ms")
	b.ReportMetric(ms(times[b.N*99/100]), "p99-ms")
	b.ReportMetric(ms(times[b.N-1]), "max-ms")
	b.ReportMetric(float64(after.NumGC-before.NumGC)/b.Elapsed().Seconds(), "GC/s")
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(b.N)/1024, "KiB/pod")
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// errLate reports that a request waited too long for its turn.
var errLate = errors.New("refused")

func ask(client *http.Client, url string, body []byte) error {
	r, err := client.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if r.StatusCode == http.StatusServiceUnavailable {
		return fmt.Errorf("%w: %s", errLate, bytes.TrimSpace(text))
	}
	if err == nil && !bytes.Contains(text, []byte(`"JSONPatch"`)) {
		err = fmt.Errorf("no patch: %s", text)
	}
	return err
}

// BenchmarkReview answers one review after another, without a network. It reports cpu-ms, the time of
// all processors for one review, which depends less than the elapsed time on what else the machine
// does.
func BenchmarkReview(b *testing.B) {
	m := newServer().Mutator
	body := reviewOf(b, large(), nil)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	before := processorTime(b)
	for b.Loop() {
		if _, what, err := m.Review(body); what != Injected || err != nil {
			b.Fatal(what, err)
		}
	}
	b.ReportMetric(ms(processorTime(b)-before)/float64(b.N), "cpu-ms/op")
}

// processorTime returns the time that all processors have spent on this process.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
