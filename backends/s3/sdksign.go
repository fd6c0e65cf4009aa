package s3

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// sdkSigner signs the requests of the SDK. A signer of the SDK keeps a key of each day by the access
// key's ID alone, so it would sign with a secret that was replaced, while the ID stays, until midnight.
// Hence each secret has a signer of its own.
type sdkSigner struct {
	mu     sync.Mutex // guards the fields below
	secret string
	signer *v4.Signer
}

// SignHTTP implements the SDK's HTTPSignerV4.
func (s *sdkSigner) SignHTTP(ctx context.Context, by aws.Credentials, r *http.Request, payload, service, region string, at time.Time, opts ...func(*v4.SignerOptions)) error {
	return s.of(by.SecretAccessKey).SignHTTP(ctx, by, r, payload, service, region, at, opts...)
}

func (s *sdkSigner) of(secret string) *v4.Signer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.signer == nil || s.secret != secret {
		s.secret = secret
		s.signer = v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }) // as the SDK's own of S3
	}
	return s.signer
}
