package s3

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/stager-dev/stager/backends"
)

// signer signs requests with AWS Signature Version 4, without their bodies, and caches the key of
// the day. The SDK's signer does the same but takes three times as long, because it must first
// collect and sort the headers.
type signer struct {
	creds   aws.CredentialsProvider // nil: requests are not signed
	token   int                     // the field of the session token
	service string
	region  string
	key     atomic.Pointer[dayKey]
	ahead   atomic.Int64 // nanoseconds that the store's clock is ahead of ours
}

// dayKey is the signing key of a secret for one day, one region and one service.
type dayKey struct {
	secret, day string
	macs        sync.Pool // of hash.Hash: HMACs with the key already applied, which is half of the work
}

func (k *dayKey) mac(text []byte) [sha256.Size]byte {
	h := k.macs.Get().(hash.Hash)
	defer k.macs.Put(h)
	h.Reset()
	h.Write(text)
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	return sum
}

// The values in place of the SHA-256 of a body: the hash of an empty body, and for all others
// UNSIGNED-PAYLOAD, because a cheaper checksum is sent along.
const (
	emptySum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	unsigned = "UNSIGNED-PAYLOAD"
)

// fields are the signed headers, in ascending order, and in the spelling of net/http.
var fields = [...]struct{ signed, sent string }{
	{"content-type", "Content-Type"},
	{"host", ""}, // set elsewhere in net/http
	{"if-match", "If-Match"},
	{"if-none-match", "If-None-Match"},
	{"range", "Range"},
	{"x-amz-checksum-crc64nvme", "X-Amz-Checksum-Crc64nvme"},
	{"x-amz-checksum-mode", "X-Amz-Checksum-Mode"},
	{"x-amz-content-sha256", "X-Amz-Content-Sha256"},
	{"x-amz-date", "X-Amz-Date"},
	{"x-amz-meta-" + markName, "X-Amz-Meta-Stager-Write"},
	{"x-amz-request-payer", "X-Amz-Request-Payer"},
	{"x-amz-s3session-token", "X-Amz-S3session-Token"},
	{"x-amz-security-token", "X-Amz-Security-Token"},
	{"x-amz-server-side-encryption", "X-Amz-Server-Side-Encryption"},
	{"x-amz-server-side-encryption-aws-kms-key-id", "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id"},
	{"x-amz-server-side-encryption-customer-algorithm", "X-Amz-Server-Side-Encryption-Customer-Algorithm"},
	{"x-amz-server-side-encryption-customer-key", "X-Amz-Server-Side-Encryption-Customer-Key"},
	{"x-amz-server-side-encryption-customer-key-md5", "X-Amz-Server-Side-Encryption-Customer-Key-Md5"},
	{"x-amz-tagging", "X-Amz-Tagging"},
}

// The indexes of the fields.
const (
	typeField = iota
	hostField
	matchField
	noneMatchField
	rangeField
	crcField
	modeField
	sumField
	dateField
	markField
	payerField
	sessionField // the token of an S3 Express session
	tokenField   // the token of other sessions
	sseField
	kmsKeyField
	customerAlgorithmField
	customerKeyField
	customerSumField
	tagsField
)

// values are the values of the fields; empty ones are omitted.
type values [len(fields)]string

// call describes a request. Its path and query are already escaped.
type call struct {
	method             string // "": GET
	plain, path, query string
	key, upload        string // of the object, and of the multipart upload of a part
	number             int    // of the part
	values             values
	body               *backends.Part // nil: none
}

func (q *call) verb() string { return cmp.Or(q.method, http.MethodGet) }

// header returns the headers of a request, signed at now. They share memory with q.
func (s *signer) header(ctx context.Context, q *call, now time.Time) (http.Header, error) {
	var creds aws.Credentials
	if s.creds != nil {
		var err error
		if creds, err = s.creds.Retrieve(ctx); err != nil {
			return nil, err
		}
		now = now.Add(time.Duration(s.ahead.Load())).UTC()
		q.values[sumField], q.values[dateField], q.values[s.token] = emptySum, now.Format("20060102T150405Z"), creds.SessionToken
		if q.body != nil {
			q.values[sumField] = unsigned
		}
	}
	h := make(http.Header, 8) // most requests have no more, and a map of more is several times as large
	for i, value := range &q.values {
		if value != "" && i != hostField {
			h[fields[i].sent] = q.values[i : i+1 : i+1]
		}
	}
	h["User-Agent"] = userAgent
	if s.creds != nil {
		h["Authorization"] = []string{s.authorization(&creds, q)}
	}
	return h, nil
}

var userAgent = []string{"stager"}

// authorization returns the Authorization header.
func (s *signer) authorization(creds *aws.Credentials, q *call) string {
	const algorithm = "AWS4-HMAC-SHA256"
	at := q.values[dateField]
	day := at[:8]
	text := texts.Get().(*[]byte)
	defer texts.Put(text)
	b := append(append((*text)[:0], q.verb()...), '\n')
	b = append(append(b, q.path...), '\n')
	b = append(append(b, q.query...), '\n')
	names := make([]byte, 0, 160)
	for i, value := range &q.values {
		if value != "" {
			b = append(append(append(append(b, fields[i].signed...), ':'), value...), '\n')
			names = append(append(names, fields[i].signed...), ';')
		}
	}
	names = names[:len(names)-1]
	b = append(append(append(append(b, '\n'), names...), '\n'), q.values[sumField]...)
	sum := sha256.Sum256(b)

	b = append(b[:0], algorithm+"\n"...)
	b = append(append(b, at...), '\n')
	scope := len(b)
	b = append(append(b, day...), '/')
	b = append(append(b, s.region...), '/')
	b = append(append(b, s.service...), "/aws4_request"...)
	end := len(b)
	b = hex.AppendEncode(append(b, '\n'), sum[:])
	mac := s.keyOf(creds.SecretAccessKey, day).mac(b)

	out := len(b)
	b = append(b, algorithm+" Credential="...)
	b = append(append(b, creds.AccessKeyID...), '/')
	b = append(append(b, b[scope:end]...), ", SignedHeaders="...)
	b = append(append(b, names...), ", Signature="...)
	b = hex.AppendEncode(b, mac[:])
	*text = b
	return string(b[out:])
}

// texts are buffers for the string to sign. On the stack, such a buffer would double the stack of
// each request's goroutine.
var texts = sync.Pool{New: func() any { return new([]byte) }}

func (s *signer) keyOf(secret, day string) *dayKey {
	if k := s.key.Load(); k != nil && k.secret == secret && k.day == day {
		return k
	}
	key := []byte("AWS4" + secret)
	for _, part := range []string{day, s.region, s.service, "aws4_request"} {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(part))
		key = h.Sum(nil)
	}
	k := &dayKey{secret: secret, day: day}
	k.macs.New = func() any { return hmac.New(sha256.New, key) }
	s.key.Store(k)
	return k
}

// skewThreshold is the smallest clock difference that is corrected.
const skewThreshold = 4 * time.Minute

// learnClock adopts the clock of a store that rejected the time of a signature. It reports whether
// a retry may help.
func (s *signer) learnClock(date string, now time.Time) bool {
	there, err := http.ParseTime(date)
	if err != nil {
		return false
	}
	ahead := there.Sub(now)
	if (ahead - time.Duration(s.ahead.Load())).Abs() < skewThreshold {
		return false
	}
	s.ahead.Store(int64(ahead))
	return true
}
