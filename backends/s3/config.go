package s3

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// Scheme returns the scheme of s3:// URLs.
func Scheme() backends.Scheme {
	return backends.Scheme{
		Name:    "s3",
		Summary: "Amazon S3 and compatible stores: Ceph, MinIO, Google, R2 and others",
		Example: "s3://bucket/directory/",
		Params: []backends.Param{
			{Name: "endpoint", Summary: "the server's URL; else AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, of the Secret or the environment", Default: "AWS"},
			{Name: "region", Summary: "the bucket's region", Default: "found on AWS, us-east-1 elsewhere"},
			{Name: "path-style", Summary: "true for the bucket in the path, false for the host name", Default: "true for endpoints other than AWS, OSS and COS"},
			{Name: "anonymous", Summary: "true sends requests unsigned, for public buckets", Default: "false"},
			{Name: "requester-pays", Summary: "true to pay for the requests", Default: "false"},
			{Name: "ca-bundle", Summary: "a PEM file of certificate authorities to trust; else AWS_CA_BUNDLE", Default: "the system's"},
			{Name: "list", Summary: "directories lists directory by directory, for servers that do not list in byte order; auto does so if a page is out of order", Default: "auto"},
			{Name: "checksum", Summary: "crc64nvme sends one with each write, none never, auto until the store rejects it", Default: "crc64nvme on AWS, auto elsewhere"},
		},
		Credentials: "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, mount files of these names, give the machine or the service account a role, or add ?anonymous=true for a public bucket.",
		Open:        open,
	}
}

// settings are the parsed parameters of a Target.
type settings struct {
	endpoint      string // "" for AWS
	aws           bool   // the server is AWS, also with an explicit AWS endpoint
	region        string // "" if it must be detected
	pathStyle     bool
	anonymous     bool
	requesterPays bool
	caBundle      string
	checksum      string
	byDirs        bool
}

func parse(t backends.Target) (settings, error) {
	invalid := func(format string, args ...any) (settings, error) {
		return settings{}, backends.Errorf(backends.Invalid, "open", "", format, args...)
	}
	var unread error
	getenv := func(name string) string {
		text, err := objectstore.SecretFile(t.Options, name)
		unread = errors.Join(unread, err)
		if text == "" && t.Getenv != nil {
			text = t.Getenv(name)
		}
		return text
	}
	first := func(param string, env ...string) string {
		value := t.Params.Get(param)
		for _, name := range env {
			if value == "" {
				value = getenv(name)
			}
		}
		return value
	}
	if t.Host == "" || strings.Contains(t.Host, ":") || t.User != "" {
		return invalid("an s3 URL starts with the bucket, as in s3://bucket/directory/; set the server with ?endpoint=")
	}
	c := settings{
		endpoint: first("endpoint", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
		region:   first("region"),
		checksum: first("checksum"),
		caBundle: t.Params.Get("ca-bundle"),
		aws:      true,
	}
	if c.caBundle == "" && t.Getenv != nil {
		c.caBundle = t.Getenv("AWS_CA_BUNDLE") // a file name, which has no meaning in a Secret
	}
	host := ""
	if c.endpoint != "" {
		u, err := url.Parse(c.endpoint)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" {
			return invalid("the endpoint must look like https://host:port")
		}
		host = u.Hostname()
		c.aws = under(host, "amazonaws.com", "amazonaws.com.cn")
		if !c.aws && c.region == "" {
			c.region = first("", "AWS_REGION", "AWS_DEFAULT_REGION")
			if c.region == "" {
				c.region = "us-east-1"
			}
		}
	}
	if unread != nil {
		return invalid("cannot read the files with endpoint and region: %w", unread)
	}
	c.pathStyle = c.endpoint != "" && !c.aws && !under(host, "aliyuncs.com", "myqcloud.com")
	for name, to := range map[string]*bool{"path-style": &c.pathStyle, "anonymous": &c.anonymous, "requester-pays": &c.requesterPays} {
		text := t.Params.Get(name)
		if text == "" {
			continue
		}
		v, err := strconv.ParseBool(text)
		if err != nil {
			return invalid("parameter %q must be true or false, not %q", name, text)
		}
		*to = v
	}
	switch list := t.Params.Get("list"); list {
	case "", "auto":
	case "directories":
		c.byDirs = true
	default:
		return invalid("parameter \"list\" must be auto or directories, not %q", list)
	}
	switch c.checksum {
	case "":
		c.checksum = "auto"
		if c.aws {
			c.checksum = "crc64nvme"
		}
	case "auto", "none", "crc64nvme":
	default:
		return invalid("parameter \"checksum\" must be auto, crc64nvme or none, not %q", c.checksum)
	}
	return c, nil
}

// under reports whether host is one of the domains or a subdomain.
func under(host string, domains ...string) bool {
	for _, d := range domains {
		if host == d || strings.HasSuffix(host, "."+d) {
			return true
		}
	}
	return false
}

func open(ctx context.Context, t backends.Target) (backends.Opened, error) {
	set, err := parse(t)
	if err != nil {
		return backends.Opened{}, err
	}
	transport, err := objectstore.NewTransport(set.caBundle)
	if err != nil {
		return backends.Opened{}, err
	}
	b := &bucket{name: t.Host, transport: transport, log: t.Log, unset: set.endpoint == ""}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	if set.requesterPays {
		b.payer = types.RequestPayerRequester
	}
	b.sums.Store(set.checksum != "none")
	b.byDirs.Store(set.byDirs)
	b.sumsMayGo = set.checksum == "auto"
	opts := s3.Options{
		Region:       set.region,
		UsePathStyle: set.pathStyle,
		HTTPClient:   &http.Client{Transport: progress{transport}, CheckRedirect: objectstore.NoRedirect},
		Retryer:      aws.NopRetryer{}, // the Store retries; nested retries multiply
		// Checksums that the SDK adds on its own break PUT on Ceph over TLS. Ours are headers,
		// which every store accepts or rejects by name.
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
		APIOptions:                 apiOptions,
	}
	if set.endpoint != "" {
		opts.BaseEndpoint = &set.endpoint
	}
	if set.anonymous {
		opts.Credentials = aws.AnonymousCredentials{}
	}
	if !set.anonymous || set.region == "" {
		shared, err := config.LoadDefaultConfig(ctx)
		if err != nil {
			return backends.Opened{}, backends.Errorf(backends.Invalid, "open", "", "cannot read the shared AWS configuration: %w", err)
		}
		if !set.anonymous {
			found := newRenewable(t.Options, shared.Credentials, func(ctx context.Context) (aws.CredentialsProvider, error) {
				again, err := config.LoadDefaultConfig(ctx)
				return again.Credentials, err
			})
			opts.Credentials, b.renew = found.cache, found.renew
		}
		if opts.Region == "" {
			opts.Region = shared.Region
		}
	}
	if set.region == "" {
		if opts.Region, err = b.findRegion(ctx, opts); err != nil {
			return backends.Opened{}, err
		}
	}
	b.client = s3.New(opts)
	if b.reader, err = newReader(ctx, t.Host, b.client.Options(), transport, string(b.payer)); err != nil {
		return backends.Opened{}, err
	}
	b.decidesParts, b.matches = set.aws, set.aws
	b.decidesOne = set.aws || !set.anonymous && !b.versioned(ctx)
	return backends.Opened{Backend: b, Prefix: t.Path}, nil
}

// findRegion returns the region of the bucket. The request needs no credentials and works from any
// region of the same partition. opts.Region is where to send it.
func (b *bucket) findRegion(ctx context.Context, opts s3.Options) (string, error) {
	if opts.Region == "" {
		opts.Region = "us-east-1"
	}
	opts.Credentials = aws.AnonymousCredentials{}
	out, err := s3.New(opts).HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &b.name})
	if err == nil {
		if out.BucketRegion != nil {
			return *out.BucketRegion, nil
		}
		return opts.Region, nil
	}
	var res *awshttp.ResponseError
	if errors.As(err, &res) && res.Response != nil && res.Response.Response != nil {
		if region := res.Response.Header.Get("X-Amz-Bucket-Region"); region != "" {
			return region, nil
		}
		if res.HTTPStatusCode() == http.StatusNotFound {
			return "", b.noBucket("open", "")
		}
	}
	var e *backends.Error
	errors.As(b.explain("open", "", err), &e)
	if !b.unset || serverErrorOf(err).status != 0 { // otherwise the missing endpoint is the main problem
		e.Err = fmt.Errorf("cannot determine the bucket's region (%w): set ?region=", e.Err)
	}
	return "", e
}
