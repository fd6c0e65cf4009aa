package backends

import "sync/atomic"

// A pacer applies the bandwidth limit to the bytes of one attempt and resets the stall detector. Bytes
// that an earlier attempt already sent are not progress: a store that accepts all bytes and then always
// fails must not be retried for ever. The methods of a nil pacer do nothing.
type pacer struct {
	store   *Store
	attempt *attempt
	reached *atomic.Int64 // highest offset of any attempt
}

// wait waits until n bytes may be sent.
func (p *pacer) wait(n int) error {
	if p == nil {
		return nil
	}
	if err := p.yield(n); err != nil {
		return err
	}
	return p.store.throttle(p.attempt, n)
}

// moved records that n bytes from off on were sent.
func (p *pacer) moved(off int64, n int) {
	if p == nil {
		return
	}
	if end, before := off+int64(n), p.reached.Load(); end > before {
		p.reached.CompareAndSwap(before, end)
		p.attempt.Reset()
		p.store.requests.moved(n)
	} else {
		p.attempt.alive()
	}
}

// yield waits while more urgent work is active, with the stall detector paused.
func (p *pacer) yield(n int) error {
	if p.store.opts.Yield == nil {
		return nil
	}
	p.attempt.Pause()
	defer p.attempt.alive()
	if err := p.store.opts.Yield(p.attempt, n); err != nil {
		return &Error{Kind: Canceled, Err: err}
	}
	return nil
}
