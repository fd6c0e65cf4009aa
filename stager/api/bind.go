package api

import "sync"

// bindings are the leases that live as long as a connection. A reader that is killed cannot return
// its leases, but the kernel closes its sockets. The server detects the end of the connection and
// returns the leases that are bound to it.
//
// A lease is bound to one connection at a time. A reader that lost its connection binds the lease
// to its new one. The end of the old connection, whenever the kernel reports it, then has no effect
// on the lease.
type bindings struct {
	mu sync.Mutex
	of map[string]binding // by lease
}

type binding struct {
	conn     *tracked
	giveBack func()
}

// bind calls giveBack when the connection ends, unless the lease is unbound or rebound before. It
// calls giveBack at once if the connection has ended.
func (b *bindings) bind(conn *tracked, lease string, giveBack func()) {
	b.mu.Lock()
	if b.of == nil {
		b.of = make(map[string]binding)
	}
	b.dropLocked(lease)
	b.of[lease] = binding{conn, giveBack}
	conn.table.hold(conn, 1)
	b.mu.Unlock()
	conn.onEnd(func() { b.end(conn) })
}

// unbind removes the binding of a lease that has ended, if there is one.
func (b *bindings) unbind(lease string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropLocked(lease)
}

// dropLocked removes a binding, if there is one.
func (b *bindings) dropLocked(lease string) {
	if at, bound := b.of[lease]; bound {
		at.conn.table.hold(at.conn, -1)
		delete(b.of, lease)
	}
}

// end returns the leases that are bound to a connection.
func (b *bindings) end(conn *tracked) {
	var lost []func()
	b.mu.Lock()
	for lease, at := range b.of {
		if at.conn == conn {
			lost = append(lost, at.giveBack)
			b.dropLocked(lease)
		}
	}
	b.mu.Unlock()
	for _, giveBack := range lost {
		giveBack()
	}
}
