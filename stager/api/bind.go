package api

import "sync"

// bindings are the leases that live as long as a connection. A reader that is
// killed cannot say so, but the kernel closes its sockets: the server sees the end
// of the connection and gives back what was bound to it.
//
// A lease is bound to one connection at a time. A reader that lost its connection
// binds the lease to its new one, and the end of the old one, whenever the kernel
// tells of it, is no business of the lease any more.
type bindings struct {
	mu sync.Mutex
	of map[string]binding // by lease
}

type binding struct {
	conn     *tracked
	giveBack func()
}

// bind has giveBack called when the connection ends, unless the lease is unbound or
// bound anew before: at once, if it has ended.
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

// unbind is for leases that have ended, also those that were never bound.
func (b *bindings) unbind(lease string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropLocked(lease)
}

// dropLocked forgets a binding, if there is one.
func (b *bindings) dropLocked(lease string) {
	if at, bound := b.of[lease]; bound {
		at.conn.table.hold(at.conn, -1)
		delete(b.of, lease)
	}
}

// end gives back what is bound to a connection.
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
