package hub

import (
	"context"
	"errors"
	"net"
	"net/http/httptest"
)

// Kill ends both servers like a power failure: their connections break, and new ones are refused.
func (h *Hub) Kill() error {
	var errs []error
	for _, s := range []*httptest.Server{h.Server, h.large} {
		errs = append(errs, s.Listener.Close())
		s.CloseClientConnections()
	}
	return errors.Join(errs...)
}

// Restart starts both servers again after Kill, at the same addresses.
func (h *Hub) Restart(ctx context.Context) error {
	for _, s := range []*httptest.Server{h.Server, h.large} {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.Listener.Addr().String())
		if err != nil {
			return err
		}
		s.Listener = listener       // which Close closes
		go s.Config.Serve(listener) //nolint:errcheck // it ends with Kill or Close
	}
	return nil
}
