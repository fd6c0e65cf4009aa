package servers

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Delay stands before a server and makes the way to it longer or narrower. On one that is
// longer each byte arrives half the round trip after it was sent, however many are on their
// way; on one that is narrower all connections share the bandwidth of each direction.
type Delay struct {
	Address string // host:port

	target   string
	half     time.Duration
	there    lane // to the server
	back     lane
	listener net.Listener
	wait     sync.WaitGroup

	mu    sync.Mutex // guards all below
	conns map[net.Conn]bool
	over  bool
}

// StartDelay puts a delay before the server at target, host:port.
func StartDelay(target string, roundTrip time.Duration) (*Delay, error) {
	return startWay(target, roundTrip, 0)
}

// StartNarrow lets bandwidth bytes a second through to the server at target, and as many back.
func StartNarrow(target string, bandwidth int64) (*Delay, error) {
	return startWay(target, 0, bandwidth)
}

func startWay(target string, roundTrip time.Duration, bandwidth int64) (*Delay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not block
	if err != nil {
		return nil, err
	}
	d := &Delay{Address: l.Addr().String(), target: target, half: roundTrip / 2, listener: l, conns: make(map[net.Conn]bool)}
	d.there.bandwidth, d.back.bandwidth = bandwidth, bandwidth
	d.wait.Go(d.accept)
	return d, nil
}

func (d *Delay) accept() {
	for {
		from, err := d.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", d.target) //nolint:noctx // on this machine it does not block
		if err != nil {
			from.Close() //nolint:errcheck // the client sees that it is over
			continue
		}
		if !d.keep(from, to) {
			return
		}
		d.wait.Go(func() { d.carry(to, from, &d.there) })
		d.wait.Go(func() { d.carry(from, to, &d.back) })
	}
}

// keep notes connections for Close; false if it was called already.
func (d *Delay) keep(conns ...net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range conns {
		if d.over {
			c.Close() //nolint:errcheck // nothing is expected of it
		}
		d.conns[c] = true
	}
	return !d.over
}

// lane is one direction. Each connection has one parcel in it at a time, so that they take
// turns.
type lane struct {
	bandwidth int64 // bytes a second; 0: any

	mu    sync.Mutex
	clear time.Time // when all that was let in is through
}

// late is what a lane makes up for: those who wait wake up later than they wanted.
const late = 5 * time.Millisecond

// pass waits until n bytes more are through.
func (l *lane) pass(n int) {
	if l.bandwidth == 0 {
		return
	}
	l.mu.Lock()
	if past := time.Now().Add(-late); l.clear.Before(past) {
		l.clear = past
	}
	l.clear = l.clear.Add(time.Duration(int64(n) * int64(time.Second) / l.bandwidth))
	wait := time.Until(l.clear)
	l.mu.Unlock()
	time.Sleep(wait)
}

// parcel is bytes on their way.
type parcel struct {
	bytes []byte
	due   time.Time
}

// onTheWay is how many parcels there may be, more than any server's windows hold.
const onTheWay = 1024

// carry moves bytes in one direction until either end closes, then closes both.
func (d *Delay) carry(to, from net.Conn, by *lane) {
	way, gone := make(chan parcel, onTheWay), make(chan struct{})
	pool := sync.Pool{New: func() any { return new([128 << 10]byte) }}
	d.wait.Go(func() {
		defer close(gone)
		defer to.Close()
		for p := range way {
			time.Sleep(time.Until(p.due))
			_, err := to.Write(p.bytes)
			pool.Put((*[128 << 10]byte)(p.bytes[:128<<10]))
			if err != nil {
				return
			}
		}
	})
	defer close(way)
	for {
		buf := pool.Get().(*[128 << 10]byte)
		n, err := from.Read(buf[:])
		if n > 0 {
			by.pass(n)
			select {
			case way <- parcel{buf[:n], time.Now().Add(d.half)}:
			case <-gone:
				from.Close() //nolint:errcheck // nobody takes what it says
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// Close ends the delay and all connections through it.
func (d *Delay) Close() error {
	d.mu.Lock()
	d.over = true
	errs := []error{d.listener.Close()}
	for c := range d.conns {
		if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.EOF) {
			errs = append(errs, err)
		}
	}
	d.mu.Unlock()
	d.wait.Wait()
	return errors.Join(errs...)
}
