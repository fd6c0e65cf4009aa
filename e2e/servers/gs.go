package servers

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/stager-dev/stager/e2e/servers/fake"
	"github.com/stager-dev/stager/e2e/servers/gsfake"
)

// GSOptions configure a fake of Google Cloud Storage. The zero value works.
type GSOptions struct {
	TLS     bool
	Dir     string   // where its objects are stored; "": a directory that Close removes
	Buckets []string // none: one named "test"
	Public  []string // those of Buckets that anybody may read
	NoXML   bool     // it has the JSON API alone, as some emulators
}

// GS is a running fake of Google Cloud Storage, in this process.
type GS struct {
	*gsfake.Server
	CAFile   string // the authority to trust; "" without TLS
	KeyFile  string // the credentials of the service account
	Identity string // the credentials of a workload identity

	temp *temp
}

// StartGS starts a fake on a free port of this machine.
func StartGS(opts GSOptions) (s *GS, err error) {
	s = new(GS)
	defer closeUnlessStarted(&s, &err)
	in := fake.Options{Dir: opts.Dir, Buckets: opts.Buckets, Public: opts.Public}
	if s.temp, err = makeTemp("gs"); err != nil {
		return s, err
	}
	if in.Dir == "" {
		in.Dir = filepath.Join(s.temp.path, "objects")
		if err := os.Mkdir(in.Dir, 0o700); err != nil {
			return s, err
		}
	}
	if opts.TLS {
		if s.CAFile, in.Cert, in.Key, err = certificate(s.temp.path); err != nil {
			return s, err
		}
	}
	if s.Server, err = gsfake.Start(in, opts.NoXML); err != nil {
		return s, err
	}
	return s, s.writeCredentials()
}

// writeCredentials writes the files with credentials.
func (s *GS) writeCredentials() error {
	s.KeyFile, s.Identity = filepath.Join(s.temp.path, "key.json"), filepath.Join(s.temp.path, "identity.json")
	token := filepath.Join(s.temp.path, "token")
	key, err1 := s.ServiceAccount()
	identity, err2 := s.WorkloadIdentity(token)
	return errors.Join(err1, err2,
		os.WriteFile(s.KeyFile, key, 0o600), os.WriteFile(s.Identity, identity, 0o600),
		os.WriteFile(token, []byte(gsfake.IdentityToken), 0o600))
}

// Env returns the variables with which clients find the server.
func (s *GS) Env() []string {
	env := []string{
		"CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE=" + s.Endpoint,
		"GOOGLE_APPLICATION_CREDENTIALS=" + s.KeyFile,
		"GCE_METADATA_HOST=" + strings.TrimPrefix(s.Control, "http://"),
		"STAGER_TEST_GS_IDENTITY=" + s.Identity,
	}
	if s.CAFile != "" {
		env = append(env, "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE="+s.CAFile)
	}
	return env
}

// Close ends the server.
func (s *GS) Close() error {
	var errs []error
	if s.Server != nil {
		errs = append(errs, s.Server.Close())
	}
	return errors.Join(append(errs, s.temp.remove())...)
}
