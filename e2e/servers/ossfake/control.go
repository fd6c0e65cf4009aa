package ossfake

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Token is a credential for a while, as the metadata service and STS give it.
type Token struct {
	Code            string
	AccessKeyID     string `json:"AccessKeyId"`
	AccessKeySecret string
	SecurityToken   string
	Expiration      time.Time
}

// NewToken makes a credential that is good for so long.
func (s *Server) NewToken(ttl time.Duration) Token {
	t := Token{"Success", "STS." + rand.Text()[:16], rand.Text(), rand.Text() + "+/=", s.now().Add(ttl).UTC()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[t.AccessKeyID] = credential{secret: t.AccessKeySecret, token: t.SecurityToken, expires: t.Expiration}
	return t
}

// SetVersioning sets a bucket's: "", Enabled or Suspended.
func (s *Server) SetVersioning(bucket, status string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.buckets[bucket]
	if b == nil {
		return fmt.Errorf("there is no bucket %q", bucket)
	}
	b.versioning = status
	return nil
}

// count notes a request by its method and parameters.
func (s *Server) count(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[strings.TrimSpace(c.Method+" "+strings.Join(slices.Sorted(maps.Keys(c.query)), ","))]++
}

// Counts are the requests so far, by method and the names of their parameters, as in
// "PUT partNumber,uploadId".
func (s *Server) Counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.counts)
}

// role is the name of the instance's role.
const role = "stager-test-role"

// control is the server's other face, for whoever runs it as a process:
//
//	POST /faults?kind=cut&method=GET&key=name&param=uploadId&bytes=100&times=2
//	DELETE /faults
//	POST /down?for=10s      nobody listens at the other
//	POST /versioning?bucket=test&status=Enabled
//	POST /tokens?ttl=1h     makes a token and tells it; also that of the instance's
//	GET /counts
//
// and for clients that believe to be on an ECS instance:
//
//	PUT /latest/api/token
//	GET /latest/meta-data/ram/security-credentials/[role]
func (s *Server) control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /faults", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		f := Fault{Kind: FaultKind(q.Get("kind")), Method: q.Get("method"), Key: q.Get("key"), Param: q.Get("param"), Times: 1}
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
		s.mu.Lock()
		defer s.mu.Unlock()
		s.faults = nil
	})
	mux.HandleFunc("POST /down", func(w http.ResponseWriter, r *http.Request) {
		d, err := time.ParseDuration(r.FormValue("for"))
		if err == nil {
			err = s.Down(d)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	})
	mux.HandleFunc("POST /versioning", func(w http.ResponseWriter, r *http.Request) {
		if err := s.SetVersioning(r.FormValue("bucket"), r.FormValue("status")); err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
		}
	})
	mux.HandleFunc("POST /tokens", func(w http.ResponseWriter, r *http.Request) {
		ttl, err := time.ParseDuration(r.FormValue("ttl"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		s.ttl = ttl
		s.mu.Unlock()
		tell(w, s.NewToken(ttl))
	})
	mux.HandleFunc("GET /counts", func(w http.ResponseWriter, _ *http.Request) { tell(w, s.Counts()) })

	session := rand.Text() // of the metadata service
	mux.HandleFunc("PUT /latest/api/token", func(w http.ResponseWriter, r *http.Request) {
		if ttl, err := strconv.Atoi(r.Header.Get("X-aliyun-ecs-metadata-token-ttl-seconds")); err != nil || ttl < 1 || ttl > 21600 {
			http.Error(w, "400 - Bad Request", http.StatusBadRequest)
			return
		}
		fmt.Fprint(w, session)
	})
	mux.HandleFunc("GET /latest/meta-data/ram/security-credentials/{role...}", func(w http.ResponseWriter, r *http.Request) {
		switch asked := r.PathValue("role"); {
		case r.Header.Get("X-aliyun-ecs-metadata-token") != session:
			http.Error(w, "403 - Forbidden", http.StatusForbidden)
		case asked == "":
			fmt.Fprint(w, role)
		case asked == role:
			s.mu.Lock()
			ttl := s.ttl
			s.mu.Unlock()
			tell(w, s.NewToken(ttl))
		default:
			http.NotFound(w, r)
		}
	})
	return mux
}

func tell(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // what hears it may have gone
}
