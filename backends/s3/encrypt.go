package s3

import (
	"crypto/md5" // the protocol names the key by it
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// extras are what the URL of a store adds to its objects: encryption by the store, and tags. Empty
// ones add no header.
type extras struct {
	sse, kmsKey string // sent when an object or an upload is created, and never with a read
	customer    customerKey
	tags        string // in the form of a query string
}

// customerKey is a key that the store uses for a request and forgets. Every request for the content
// or the attributes of an object must contain it.
type customerKey struct{ algorithm, key, sum string }

// ofCustomer is the value of ?sse= for a customerKey. Its other values are those of the header.
const ofCustomer = "customer"

// customerKeyName is the file or variable that contains the key, base64-encoded.
const customerKeyName = "AWS_SSE_CUSTOMER_KEY"

// check completes the extras of a URL whose parameters have been read, and rejects combinations
// that a store would reject with every write.
func (e *extras) check(from *objectstore.Lookup, endpoint, tags string) (err error) {
	invalid := func(format string, args ...any) error {
		return backends.Errorf(backends.Invalid, "open", "", format, args...)
	}
	if e.kmsKey != "" && !strings.HasPrefix(e.sse, "aws:kms") {
		return invalid("?sse-kms-key-id= needs ?sse=aws:kms")
	}
	if e.tags, err = tagging(tags); err != nil || e.sse != ofCustomer {
		return err
	}
	e.sse = ""
	if strings.HasPrefix(endpoint, "http://") {
		return invalid("?sse=%s sends the key to the store, so the endpoint must be https://", ofCustomer)
	}
	text := from.First("", customerKeyName)
	if from.Unread != nil {
		return invalid("cannot read the file with the key of ?sse=%s: %w", ofCustomer, from.Unread)
	}
	key, err := base64.StdEncoding.DecodeString(text)
	switch {
	case text == "":
		return invalid("?sse=%s needs %s, in the Secret or the environment: the base64 of a key of 32 bytes", ofCustomer, customerKeyName)
	case err != nil || len(key) != 32:
		return invalid("%s is not the base64 of a key of 32 bytes, as \"openssl rand -base64 32\" prints one", customerKeyName)
	}
	sum := md5.Sum(key)
	e.customer = customerKey{"AES256", base64.StdEncoding.EncodeToString(key), base64.StdEncoding.EncodeToString(sum[:])}
	return nil
}

// The limits of S3.
const (
	maxTags     = 10
	maxTagKey   = 128
	maxTagValue = 256
)

// tagging converts key=value,key=value to the value of the header.
func tagging(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	tags := url.Values{}
	for tag := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(tag, "=")
		switch {
		case !ok || key == "" || tags.Has(key):
			return "", backends.Errorf(backends.Invalid, "open", "", "parameter \"tags\" must be key=value,key=value with different keys, not %q", text)
		case len(key) > maxTagKey || len(value) > maxTagValue:
			return "", backends.Errorf(backends.Invalid, "open", "", "parameter \"tags\": S3 allows %d bytes for a key and %d for a value, which %q exceeds", maxTagKey, maxTagValue, key)
		}
		tags.Set(key, value)
	}
	if len(tags) > maxTags {
		return "", backends.Errorf(backends.Invalid, "open", "", "parameter \"tags\": S3 allows %d tags, not %d", maxTags, len(tags))
	}
	return tags.Encode(), nil
}

// create adds the headers for a request that creates an object.
func (e *extras) create(q *call) {
	q.values[sseField], q.values[kmsKeyField], q.values[tagsField] = e.sse, e.kmsKey, e.tags
}

// use adds the headers for any request about the content of an object.
func (c *customerKey) use(q *call) {
	q.values[customerAlgorithmField], q.values[customerKeyField], q.values[customerSumField] = c.algorithm, c.key, c.sum
}

// suspect returns the error for a HEAD of an object that a store rejects with 400 and, as a response to
// HEAD has no body, without a reason. It is how stores reject a missing or wrong key of the customer.
func (c *customerKey) suspect() error {
	if c.key == "" {
		return fmt.Errorf("the server returned HTTP 400 without a reason: if the object is encrypted with a key of yours, set ?sse=%s", ofCustomer)
	}
	return fmt.Errorf("the server returned HTTP 400 without a reason: check that the object is encrypted with the key in %s, or remove ?sse=%s", customerKeyName, ofCustomer)
}

// of returns nil for a header that is not sent.
func of(value string) *string {
	if value == "" {
		return nil
	}
	return &value
}
