package gsfake

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Down has nobody listen for a while.
func (s *Server) Down(d time.Duration) error {
	err := s.Kill()
	if err == nil {
		time.AfterFunc(d, func() { _ = s.Start(context.Background()) }) // whoever misses it sees it
	}
	return err
}

// Kill breaks all connections, and new ones are refused.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.front == nil {
		return errors.New("it is down already")
	}
	err := s.front.Close()
	s.front = nil
	return err
}

// Start listens again after Kill, at the same address.
func (s *Server) Start(context.Context) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.front != nil {
		return nil
	}
	_, address, _ := strings.Cut(s.Endpoint, "://")
	s.front, _, err = serve(address, http.HandlerFunc(s.answer), s.tls)
	return err
}

// Freeze has the server answer nothing more, in the middle of what it sends.
func (s *Server) Freeze() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.thaw == nil {
		s.thaw = make(chan struct{})
	}
	return nil
}

// Thaw ends Freeze.
func (s *Server) Thaw() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.thaw != nil {
		close(s.thaw)
		s.thaw = nil
	}
	return nil
}

// freezing is an answer that stops while its server is frozen.
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
	f.s.mu.Lock()
	thaw := f.s.thaw
	f.s.mu.Unlock()
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

// Keys are those of a bucket's objects, and uploads how many of its uploads are neither
// completed nor aborted.
func (s *Server) Keys(bucket string) (keys []string, uploads int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.buckets[bucket]
	return slices.Sorted(maps.Keys(b.objects)), len(b.uploads)
}
