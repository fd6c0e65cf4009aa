package api

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Limits bound what the clients of a Server can use. Zero fields, except Name and Metrics, get the
// defaults of [DefaultLimits].
type Limits struct {
	Name    string        // name of the listener, in the log and in metrics
	Readers int           // connections that hold leases, wait for one, or read a shard
	Spare   int           // additional connections, reserved for short requests such as a drain
	Idle    time.Duration // a connection without leases is closed after this idle time
	Stall   time.Duration // time in which a client must read some of a response, except a shard
	Body    time.Duration // time in which a request's body must arrive
	Metrics *Metrics
}

// Metrics are the metrics of the API's servers.
type Metrics struct {
	connections *prometheus.GaugeVec
	refused     *prometheus.CounterVec
}

// NewMetrics registers the metrics. With nil they are counted but not exported.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		connections: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "stager_api_connections", Help: "Connections to the API, on the socket and the port.",
		}, []string{"listener"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "stager_api_refused_total", Help: "Idle connections that were closed, and connections and readers that were refused, at the limit of connections. Rising: find the client that connects and does not close.",
		}, []string{"listener", "what"}),
	}
	if reg != nil {
		reg.MustRegister(m.connections, m.refused)
	}
	return m
}

// DefaultLimits returns the limits for the API's socket and port, in a process that may have the
// given number of file descriptors. A reader uses two: a connection, and the shard that it reads.
// Both limits together leave more than half for fetching and saving.
func DefaultLimits(descriptors uint64) (socket, port Limits) {
	part := func(share uint64, most int) Limits {
		readers := most
		if n := descriptors / share; n < uint64(most) {
			readers = max(int(n), 4)
		}
		return Limits{Readers: readers, Spare: min(max(readers/8, 4), 32), Idle: 5 * time.Minute, Stall: time.Minute, Body: 10 * time.Second}
	}
	socket, port = part(6, 1024), part(24, 128)
	socket.Name, port.Name = "socket", "port"
	return socket, port
}

// connections is the table of a server's connections.
//
// When it is full, a new connection replaces the one that has been least useful for the longest
// time: it is idle between two requests and holds no lease, has not sent its whole request, or does
// not read its shard. If every connection is in use, the new one gets 503.
type connections struct {
	limits Limits
	log    *slog.Logger
	start  time.Time

	mu     sync.Mutex // guards all below
	open   map[*tracked]struct{}
	logged time.Time // when refused connections were last logged
	quiet  int       // how many were refused since
}

// use records what a connection is in use for.
type use struct {
	serving bool  // a request is being handled
	reading bool  // the request is for a shard
	leases  int   // leases bound to the connection
	since   int64 // when serving or reading last changed, or the request began; see connections.now
}

// held reports whether a reader uses the connection.
func (u *use) held() bool { return u.leases > 0 || u.serving && u.reading }

var errTooMany = errors.New("too many connections are in use; try again in a moment")

func newConnections(limits Limits, log *slog.Logger) *connections {
	fallback, _ := DefaultLimits(1024)
	if limits.Readers == 0 {
		limits.Readers, limits.Spare = fallback.Readers, fallback.Spare
	}
	if limits.Idle == 0 {
		limits.Idle = fallback.Idle
	}
	if limits.Stall == 0 {
		limits.Stall = fallback.Stall
	}
	if limits.Body == 0 {
		limits.Body = fallback.Body
	}
	if limits.Metrics == nil {
		limits.Metrics = NewMetrics(nil)
	}
	return &connections{limits: limits, log: log, start: time.Now(), open: make(map[*tracked]struct{})}
}

// now returns the time on a monotonic clock.
func (c *connections) now() int64 { return int64(time.Since(c.start)) }

// admit adds a connection and reports whether there was room for it.
func (c *connections) admit(t *tracked) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.open) >= c.limits.Readers+c.limits.Spare {
		victim := c.leastUsedLocked()
		if victim == nil {
			c.refusedLocked("connection")
			return false
		}
		c.closeLocked(victim)
		c.refusedLocked("idle")
	}
	t.use.since = c.now()
	c.open[t] = struct{}{}
	c.countLocked()
	return true
}

// leastUsedLocked returns the connection that has been unused for the longest time, or nil if all
// are in use.
func (c *connections) leastUsedLocked() (least *tracked) {
	stalled := c.now() - int64(c.limits.Stall)
	var oldest int64
	for t := range c.open {
		since := t.use.since
		switch {
		case t.use.leases > 0:
			continue
		case t.use.serving && t.patient.Load():
			if since = t.progress.Load(); since > stalled {
				continue
			}
		case t.use.serving:
			continue
		}
		if least == nil || since < oldest {
			least, oldest = t, since
		}
	}
	return least
}

// closeLocked closes a connection and removes it from the table at once, so that its place is free.
func (c *connections) closeLocked(t *tracked) {
	delete(c.open, t)
	_ = t.Conn.Close() // no longer needed
}

func (c *connections) remove(t *tracked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, t)
	c.countLocked()
}

// note records when a request begins and when its connection becomes idle.
func (c *connections) note(t *tracked, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if state == http.StateIdle {
		t.use.serving, t.use.reading = false, false
	}
	t.use.since = c.now()
}

// serve marks a connection as serving a request.
func (c *connections) serve(t *tracked) {
	if t == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t.use.serving, t.use.reading = true, false
}

// read marks a connection as reading a shard, and reports whether the limit allows it.
func (c *connections) read(t *tracked) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !t.use.held() {
		readers := 0
		for other := range c.open {
			if other.use.held() {
				readers++
			}
		}
		if readers >= c.limits.Readers {
			c.refusedLocked("reader")
			return false
		}
	}
	t.use.reading = true
	return true
}

// hold changes the number of leases that are bound to a connection.
func (c *connections) hold(t *tracked, change int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t.use.leases += change
}

// logPause is the minimum interval between log lines about refused connections.
const logPause = time.Minute

func (c *connections) refusedLocked(what string) {
	c.limits.Metrics.refused.WithLabelValues(c.limits.Name, what).Inc()
	c.quiet++
	if now := time.Now(); c.logged.IsZero() || now.Sub(c.logged) >= logPause {
		c.log.Warn("too many connections to the API, closing idle ones and rejecting others",
			"listener", c.limits.Name, "limit", c.limits.Readers+c.limits.Spare, "what", what, "count", c.quiet)
		c.logged, c.quiet = now, 0
	}
}

func (c *connections) countLocked() {
	c.limits.Metrics.connections.WithLabelValues(c.limits.Name).Set(float64(len(c.open)))
}

// sweep closes connections that have been idle for too long.
func (c *connections) sweep(now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for t := range c.open {
		if !t.use.serving && t.use.leases == 0 && now-t.use.since >= int64(c.limits.Idle) {
			c.closeLocked(t)
		}
	}
	c.countLocked()
}

// sweepRegularly calls sweep periodically until stop is called.
func (c *connections) sweepRegularly() (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(c.limits.Idle / 4)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				c.sweep(c.now())
			case <-end:
				return
			}
		}
	}()
	return func() { close(end); <-ended }
}

// limited rejects a request for a shard if there are too many readers.
func limited(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s, t := serverOf(r), connOf(r); s != nil && t != nil && !s.table.read(t) {
			w.Header().Set("Retry-After", "1")
			fail(w, http.StatusServiceUnavailable, fmt.Errorf("too many readers: %d hold shards or wait for one; a higher limit of open files (ulimit -n) allows more, up to 1024", s.table.limits.Readers))
			return
		}
		h(w, r)
	}
}
