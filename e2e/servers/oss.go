package servers

import (
	"errors"

	"github.com/stager-dev/stager/e2e/servers/fake"
	"github.com/stager-dev/stager/e2e/servers/ossfake"
)

// OSSOptions say what server is wanted. The zero value works.
type OSSOptions struct {
	TLS     bool
	Dir     string   // where its objects lie; "": a directory that Close removes
	Buckets []string // none: one named "test"
	// Public and Versions name those of Buckets that anybody may read, and those with
	// versioning.
	Public, Versions []string
}

// OSS is a running double of Alibaba Cloud's OSS, in this process.
type OSS struct {
	*ossfake.Server
	CAFile string // the authority to trust; "" without TLS

	temp *temp
}

// StartOSS starts a double on a free port of this machine.
func StartOSS(opts OSSOptions) (s *OSS, err error) {
	s = new(OSS)
	defer closeUnlessStarted(&s, &err)
	in := ossfake.Options{Options: fake.Options{Dir: opts.Dir, Buckets: opts.Buckets, Public: opts.Public}, Versions: opts.Versions}
	if s.temp, err = makeTemp("oss"); err != nil {
		return s, err
	}
	if in.Dir == "" {
		in.Dir = s.temp.path
	}
	if opts.TLS {
		if s.CAFile, in.Cert, in.Key, err = certificate(s.temp.path); err != nil {
			return s, err
		}
	}
	s.Server, err = ossfake.Start(in)
	return s, err
}

// Env are the variables by which OSS tools and stager find the server. That of the
// metadata service is stager's own.
func (s *OSS) Env() []string {
	env := []string{
		"OSS_ENDPOINT=" + s.Endpoint, "OSS_REGION=" + s.Region,
		"OSS_ACCESS_KEY_ID=" + s.AccessKey, "OSS_ACCESS_KEY_SECRET=" + s.SecretKey,
		"OSS_ECS_METADATA_ENDPOINT=" + s.Control,
	}
	if s.CAFile != "" {
		env = append(env, "OSS_CA_BUNDLE="+s.CAFile)
	}
	return env
}

// Close ends the server.
func (s *OSS) Close() error {
	var errs []error
	if s.Server != nil {
		errs = append(errs, s.Server.Close())
	}
	return errors.Join(append(errs, s.temp.remove())...)
}
