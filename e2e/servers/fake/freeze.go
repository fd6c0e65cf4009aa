package fake

import "net/http"

// Freeze stops all responses, also in the middle of a body.
func (s *Server) Freeze() error {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.thaw == nil {
		s.thaw = make(chan struct{})
	}
	return nil
}

// Thaw ends Freeze.
func (s *Server) Thaw() error {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.thaw != nil {
		close(s.thaw)
		s.thaw = nil
	}
	return nil
}

// freezing is a response that stops while its server is frozen.
type freezing struct {
	http.ResponseWriter
	s *Server
	r *http.Request
}

// Write waits for Thaw.
func (f *freezing) Write(p []byte) (int, error) {
	f.wait()
	return f.ResponseWriter.Write(p)
}

func (f *freezing) wait() {
	f.s.Mu.Lock()
	thaw := f.s.thaw
	f.s.Mu.Unlock()
	if thaw == nil {
		return
	}
	select {
	case <-thaw:
	case <-f.r.Context().Done():
	}
}

// Unwrap lets http.ResponseController through.
func (f *freezing) Unwrap() http.ResponseWriter { return f.ResponseWriter }
