package ossfake

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/stager-dev/stager/e2e/servers/fake"
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
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.keys[t.AccessKeyID] = credential{secret: t.AccessKeySecret, token: t.SecurityToken, expires: t.Expiration}
	return t
}

// SetVersioning sets a bucket's: "", Enabled or Suspended.
func (s *Server) SetVersioning(bucket, status string) error {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	b := s.Buckets[bucket]
	if b == nil {
		return fmt.Errorf("there is no bucket %q", bucket)
	}
	b.Versioning = status
	return nil
}

// role is the name of the instance's role.
const role = "stager-test-role"

// control adds to the control API for tests:
//
//	POST /versioning?bucket=test&status=Enabled
//	POST /tokens?ttl=1h     issues a token; those of the instance then last as long
//
// and for clients that believe to be on an ECS instance:
//
//	PUT /latest/api/token
//	GET /latest/meta-data/ram/security-credentials/[role]
func (s *Server) control(mux *http.ServeMux) {
	mux.HandleFunc("POST /versioning", func(w http.ResponseWriter, r *http.Request) {
		if err := s.SetVersioning(r.FormValue("bucket"), r.FormValue("status")); err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
		}
	})
	mux.HandleFunc("POST /tokens", func(w http.ResponseWriter, r *http.Request) {
		ttl, ok := fake.Duration(w, r, "ttl")
		if !ok {
			return
		}
		s.Mu.Lock()
		s.TTL = ttl
		s.Mu.Unlock()
		fake.Report(w, s.NewToken(ttl))
	})

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
			s.Mu.Lock()
			ttl := s.TTL
			s.Mu.Unlock()
			fake.Report(w, s.NewToken(ttl))
		default:
			http.NotFound(w, r)
		}
	})
}
