package admission

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"os"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
)

// Timeouts of the server. The API server waits 5 s with the printed configuration, 10 s by default
// and never more than 30 s. It gives up first, so a timeout here affects only other clients.
const (
	answerTime  = 10 * time.Second // to read the header, and to read the body once its turn starts
	longestCall = 30 * time.Second
	idleTime    = 2 * time.Minute
	lastAnswers = 10 * time.Second // for requests in flight at shutdown
)

// What is refreshed in the background, as values of a metric label.
const (
	whatCertificate = "certificate"
	whatPlans       = "plans"
)

// Certificates supplies the serving certificate: certs.Keeper or certs.Dir.
type Certificates interface {
	// Sync refreshes the certificate.
	Sync(context.Context) error
	// GetCertificate is the callback of tls.Config.
	GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Expires returns when the certificate expires; the zero time means that there is none yet.
	Expires() time.Time
}

// Server serves the webhook to the API server over HTTPS.
type Server struct {
	Mutator      *Mutator
	Certificates Certificates
	Plans        *Plans        // nil: plans of ConfigMaps are not read
	Linger       time.Duration // how long to keep serving at shutdown, until Services have removed the pod
	Log          *slog.Logger
}

// Run serves AdmissionReviews over TLS on reviews, and /healthz, /readyz and /metrics on probes,
// until ctx ends. It then completes the requests in flight and closes both listeners.
func (s *Server) Run(ctx context.Context, reviews, probes net.Listener) error {
	reg := prometheus.NewRegistry()
	m := NewMetrics(reg, s.Certificates.Expires)
	main := s.reviewer(m)
	side := &http.Server{Handler: s.probes(ctx, reg), ReadHeaderTimeout: answerTime, ReadTimeout: answerTime, WriteTimeout: answerTime, IdleTimeout: idleTime}
	group, failed := errgroup.WithContext(ctx)
	group.Go(func() error { return served(main.ServeTLS(reviews, "", "")) })
	group.Go(func() error { return served(side.Serve(probes)) })
	group.Go(func() error { s.keep(failed, m, whatCertificate, s.Certificates.Sync, certificateEvery); return nil })
	if s.Plans != nil {
		group.Go(func() error { s.keep(failed, m, whatPlans, s.Plans.Sync, plansEvery); return nil })
	}
	group.Go(func() error {
		<-failed.Done()
		if ctx.Err() != nil { // a requested shutdown is not an error
			time.Sleep(s.Linger)
		}
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastAnswers)
		defer cancel()
		return errors.Join(main.Shutdown(end), side.Shutdown(end))
	})
	return group.Wait()
}

// reviewer returns the HTTP server of AdmissionReviews.
func (s *Server) reviewer(m *Metrics) *http.Server {
	return &http.Server{
		Handler: s.handler(m), ReadHeaderTimeout: answerTime, ReadTimeout: longestCall, WriteTimeout: 2 * longestCall, IdleTimeout: idleTime,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.Certificates.GetCertificate},
		ErrorLog:  slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
	}
}

func served(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// How often to refresh in the background, and how soon after a failure.
const (
	certificateEvery = time.Minute
	plansEvery       = 10 * time.Second
	againAfter       = 5 * time.Second
)

// keep calls sync until ctx ends. It logs a failure once, and logs the recovery.
func (s *Server) keep(ctx context.Context, m *Metrics, what string, sync func(context.Context) error, every time.Duration) {
	failing := false
	for {
		wait := every
		once, cancel := context.WithTimeout(ctx, every)
		err := sync(once)
		cancel()
		switch {
		case err != nil && ctx.Err() == nil:
			wait = againAfter
			m.failures.WithLabelValues(what).Inc()
			if !failing {
				s.Log.Error("cannot refresh the "+what+"; trying again", "error", err)
			}
			failing = true
		case failing && err == nil:
			s.Log.Info("the " + what + " can be refreshed again")
			failing = false
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// probes returns the handler of the kubelet's probes and Prometheus' metrics.
func (s *Server) probes(ctx context.Context, reg prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		switch {
		case ctx.Err() != nil:
			http.Error(w, "ending", http.StatusServiceUnavailable)
		case s.Certificates.Expires().IsZero():
			http.Error(w, "no certificate yet", http.StatusServiceUnavailable)
		case s.Plans != nil && !s.Plans.Known():
			http.Error(w, "the plans of ConfigMaps have not been read yet", http.StatusServiceUnavailable)
		default:
			fmt.Fprintln(w, "ok")
		}
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	return mux
}

// handler serves /mutate. It limits concurrent requests so that their bodies fit into memory; the
// others wait. The body of a waiting request is not read, so its read deadline starts when its turn
// comes. The deadline once started at the header: under load, requests that had waited then failed
// with truncated bodies.
func (s *Server) handler(m *Metrics) http.Handler {
	turns := make(chan struct{}, 4*runtime.GOMAXPROCS(0))
	mux := http.NewServeMux()
	mux.HandleFunc("POST /mutate", func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		answer, what, err := s.inTurn(turns, w, r)
		m.requests.WithLabelValues(string(what)).Inc()
		m.seconds.Observe(time.Since(start).Seconds())
		var bad *RequestError
		if errors.As(err, &bad) {
			s.Log.Warn("invalid request", "error", bad)
			http.Error(w, bad.Text, bad.Code)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer) // an error means that the client has disconnected
	})
	return mux
}

// inTurn waits for a turn and returns the response.
func (s *Server) inTurn(turns chan struct{}, w http.ResponseWriter, r *http.Request) (answer []byte, what Outcome, err error) {
	patience := time.NewTimer(longestCall)
	defer patience.Stop()
	select {
	case turns <- struct{}{}:
		defer func() { <-turns }()
	case <-patience.C:
		// ReadTimeout has passed, too. Without another deadline the server could not read the body
		// after the response and would reset the connection, so that the client may not see the
		// response.
		_ = readWithin(w, answerTime) // the client has disconnected
		return nil, Late, &RequestError{
			http.StatusServiceUnavailable,
			fmt.Sprintf("%d other requests took longer than %s; give the webhook more CPU or replicas", cap(turns), longestCall),
		}
	case <-r.Context().Done():
		return nil, Late, &RequestError{http.StatusServiceUnavailable, "the client disconnected while the request waited"}
	}
	if err := readWithin(w, answerTime); err != nil {
		return nil, Late, &RequestError{http.StatusServiceUnavailable, "the connection ended while the request waited"}
	}
	return s.answer(w, r)
}

// readWithin sets the deadline for reading a request's body.
func readWithin(w http.ResponseWriter, limit time.Duration) error {
	err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(limit))
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) (answer []byte, what Outcome, err error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, Malformed, &RequestError{http.StatusUnsupportedMediaType, "the Content-Type of an AdmissionReview must be application/json"}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, Malformed, &RequestError{
			http.StatusRequestEntityTooLarge,
			fmt.Sprintf("the AdmissionReview is larger than %d MiB; make the pod smaller, for example by a ConfigMap for long texts", MaxBody>>20),
		}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, Late, &RequestError{http.StatusRequestTimeout, fmt.Sprintf("the body did not arrive within %s", answerTime)}
	case err != nil:
		return nil, Late, &RequestError{http.StatusBadRequest, fmt.Sprintf("the body ended early: %v", err)}
	}
	// The deadline was for the body. net/http waits for the client's next byte from here on, and would
	// take a deadline that passes meanwhile for a client that has disconnected.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // not supported, or disconnected
	return s.Mutator.Review(body)
}
