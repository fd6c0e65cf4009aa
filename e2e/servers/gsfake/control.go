package gsfake

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/stager-dev/stager/e2e/servers/fake"
)

// account is the name of the service account.
const account = "stager@" + Project + ".iam.gserviceaccount.com"

func newSigner() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) }

// ServiceAccount returns the JSON of the credentials of the service account.
func (s *Server) ServiceAccount() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(s.signer)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]string{
		"type": "service_account", "project_id": Project, "private_key_id": "1", "client_email": account,
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		"token_uri":   s.Control + "/token",
	})
}

// IdentityToken is what the exchange for workload identities accepts.
const IdentityToken = "identity-of-the-pod"

// WorkloadIdentity returns the JSON of credentials that exchange the token in a file.
func (s *Server) WorkloadIdentity(file string) ([]byte, error) {
	return json.Marshal(map[string]any{
		"type": "external_account", "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/pool/providers/cluster",
		"subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_url": s.Control + "/sts",
		"credential_source": map[string]string{"file": file},
	})
}

// verify reports whether a request has a valid token.
func (s *Server) verify(r *http.Request) (bool, error) {
	text := r.Header.Get("Authorization")
	if text == "" {
		return false, nil
	}
	token, ok := strings.CutPrefix(text, "Bearer ")
	s.Mu.Lock()
	expires := s.tokens[token]
	s.Mu.Unlock()
	if !ok || !time.Now().Before(expires) {
		return false, invalidToken()
	}
	return true, nil
}

func invalidToken() error {
	return fake.Fail(http.StatusUnauthorized, "AuthenticationRequired", "Invalid Credentials")
}

// newToken issues an access token.
func (s *Server) newToken(w http.ResponseWriter) {
	token := "ya29." + rand.Text()
	s.Mu.Lock()
	ttl := s.TTL
	s.tokens[token] = time.Now().Add(ttl)
	s.Mu.Unlock()
	fake.Report(w, map[string]any{
		"access_token": token, "token_type": "Bearer", "expires_in": max(int(ttl.Seconds()), 1),
		"issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
	})
}

// expire makes all tokens invalid, although clients believe otherwise.
func (s *Server) expire() {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	clear(s.tokens)
}

// assertion checks what the service account signed.
func (s *Server) assertion(text string) error {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return fmt.Errorf("%d parts", len(parts))
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err := rsa.VerifyPKCS1v15(&s.signer.PublicKey, crypto.SHA256, sum[:], signature); err != nil {
		return err
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	var of struct {
		Iss, Scope, Aud string
		Exp             int64
	}
	if err == nil {
		err = json.Unmarshal(claims, &of)
	}
	if err == nil && (of.Iss != account || !strings.Contains(of.Scope, "devstorage") || of.Aud != s.Control+"/token" || of.Exp < time.Now().Unix()) {
		err = fmt.Errorf("claims %s", claims)
	}
	return err
}

// refuseToken answers like a server of OAuth.
func refuseToken(w http.ResponseWriter, description string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": "invalid_grant", "error_description": description}) // the client may have left
}

// control adds to the control API for tests:
//
//	POST /tokens?ttl=1h     sets how long the next tokens last, and makes those issued so far invalid
//
// and for clients:
//
//	POST /token             exchanges what the service account signed
//	POST /sts               exchanges IdentityToken
//	GET /computeMetadata/v1/instance/service-accounts/default/token
func (s *Server) control(mux *http.ServeMux) {
	mux.HandleFunc("POST /tokens", func(w http.ResponseWriter, r *http.Request) {
		if ttl, ok := fake.Duration(w, r, "ttl"); ok {
			s.SetTTL(ttl)
		}
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		if err := s.assertion(r.PostFormValue("assertion")); err != nil || r.PostFormValue("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" {
			refuseToken(w, "Invalid JWT Signature.")
			return
		}
		s.newToken(w)
	})
	mux.HandleFunc("POST /sts", func(w http.ResponseWriter, r *http.Request) {
		if r.PostFormValue("subject_token") != IdentityToken {
			refuseToken(w, "The subject token is not valid.")
			return
		}
		s.newToken(w)
	})
	mux.HandleFunc("GET /computeMetadata/v1/{path...}", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Metadata-Flavor") != "Google":
			http.Error(w, "Missing Metadata-Flavor:Google header.", http.StatusForbidden)
		case r.PathValue("path") == "instance/service-accounts/default/token":
			s.newToken(w)
		case r.PathValue("path") == "project/project-id":
			fmt.Fprint(w, Project)
		default:
			http.NotFound(w, r)
		}
	})
}

// SetTTL sets how long the next tokens last, and makes those issued so far invalid.
func (s *Server) SetTTL(ttl time.Duration) {
	s.expire()
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.TTL = ttl
}
