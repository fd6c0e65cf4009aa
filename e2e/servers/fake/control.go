package fake

import (
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"time"
)

// Counts returns the number of requests so far, by method and the names of their parameters, as in
// "PUT partNumber,uploadId". A fake of several APIs writes the name of the API before them.
func (s *Server) Counts() map[string]int {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return maps.Clone(s.counts)
}

// control is the API for tests, to which fakes add theirs:
//
//	POST /faults?kind=cut&method=GET&key=name&param=uploadId&action=compose&bytes=100&times=2
//	DELETE /faults
//	POST /down?for=10s      the endpoint refuses connections
//	GET /counts
func (s *Server) control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /faults", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		f := Fault{Kind: FaultKind(q.Get("kind")), Method: q.Get("method"), Key: q.Get("key"), Param: q.Get("param"), Action: q.Get("action"), Times: 1}
		for name, set := range map[string]func(int64){"bytes": func(n int64) { f.Bytes = n }, "times": func(n int64) { f.Times = int(n) }} {
			if !q.Has(name) {
				continue
			}
			n, err := strconv.ParseInt(q.Get(name), 10, 64)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			set(n)
		}
		s.Fail(f)
	})
	mux.HandleFunc("DELETE /faults", func(http.ResponseWriter, *http.Request) {
		s.Mu.Lock()
		defer s.Mu.Unlock()
		s.faults = nil
	})
	mux.HandleFunc("POST /down", func(w http.ResponseWriter, r *http.Request) {
		if d, ok := Duration(w, r, "for"); ok {
			if err := s.Down(d); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
			}
		}
	})
	mux.HandleFunc("GET /counts", func(w http.ResponseWriter, _ *http.Request) { Report(w, s.Counts()) })
	s.store.Control(mux)
	return mux
}

// Duration parses a parameter. If it cannot, it sends an error response and returns false.
func Duration(w http.ResponseWriter, r *http.Request, name string) (time.Duration, bool) {
	d, err := time.ParseDuration(r.FormValue(name))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
	return d, err == nil
}

// Report sends v as JSON.
func Report(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client may have left
}
