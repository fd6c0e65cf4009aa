package backends

// throttle waits for n bytes of the bandwidth limit. The stall detector is paused meanwhile,
// because the delay is not the store's.
func (s *Store) throttle(a *attempt, n int) error {
	limit := s.opts.Bandwidth
	if limit == nil {
		return nil
	}
	a.Pause()
	defer a.alive()
	for n > 0 {
		take := min(n, max(limit.Burst(), 1))
		if err := limit.WaitN(a, take); err != nil {
			return &Error{Kind: Canceled, Err: err} // the context ends before the limit allows the bytes
		}
		n -= take
	}
	return nil
}
