package s3

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/logging"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
	"github.com/stager-dev/stager/backends/internal/params"
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
			{Name: "sse", Summary: "encryption of what is written: AES256, aws:kms, aws:kms:dsse, or customer for the key in AWS_SSE_CUSTOMER_KEY, of the Secret or the environment, which reads need too", Default: "the bucket's"},
			{Name: "sse-kms-key-id", Summary: "the key of the key management service, with sse=aws:kms", Default: "the bucket's"},
			{Name: "tags", Summary: "tags of what is written, as in team=vision,stage=raw", Default: "none"},
			{Name: "client", Summary: "sdk sends all requests by the AWS SDK, with two to three times the CPU time: try it if a server rejects requests", Default: "stager"},
		},
		Credentials: "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, mount files of these names, give the machine or the service account a role, or add ?anonymous=true for a public bucket.",
		Open:        open,
		Buckets:     listBuckets,
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
	sdk           bool // the SDK sends all requests
	extras        extras
}

func parse(t backends.Target) (settings, error) {
	invalid := func(format string, args ...any) (settings, error) {
		return settings{}, backends.Errorf(backends.Invalid, "open", "", format, args...)
	}
	from := objectstore.Lookup{Target: t}
	if strings.Contains(t.Host, ":") || t.User != "" {
		return invalid("an s3 URL starts with the bucket, as in s3://bucket/directory/; set the server with ?endpoint=")
	}
	c := settings{
		endpoint: from.First("endpoint", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
		region:   t.Params.Get("region"),
		caBundle: t.Params.Get("ca-bundle"),
		aws:      true,
	}
	host, plain := "", false
	if c.endpoint != "" {
		u, err := objectstore.ParseEndpoint(c.endpoint)
		if err != nil {
			return settings{}, err
		}
		host, plain = u.Hostname(), u.Scheme == "http"
		c.aws = under(host, "amazonaws.com", "amazonaws.com.cn")
		if !c.aws && c.region == "" {
			c.region = cmp.Or(from.First("", "AWS_REGION", "AWS_DEFAULT_REGION"), "us-east-1")
		}
	}
	if c.caBundle == "" && !plain && t.Getenv != nil {
		c.caBundle = t.Getenv("AWS_CA_BUNDLE") // a file name, which has no meaning in a Secret
	}
	if from.Unread != nil {
		return invalid("cannot read the files with endpoint and region: %w", from.Unread)
	}
	c.pathStyle = c.endpoint != "" && !c.aws && !under(host, "aliyuncs.com", "myqcloud.com")
	c.checksum = "auto"
	if c.aws {
		c.checksum = "crc64nvme"
	}
	list, client, tags := "auto", "stager", ""
	err := params.Read(t.Params,
		params.Bool("path-style", &c.pathStyle),
		params.Bool("anonymous", &c.anonymous),
		params.Bool("requester-pays", &c.requesterPays),
		params.Choice("list", &list, "auto", "directories"),
		params.Choice("checksum", &c.checksum, "auto", "crc64nvme", "none"),
		params.Choice("sse", &c.extras.sse, "AES256", "aws:kms", "aws:kms:dsse", ofCustomer),
		params.Text("sse-kms-key-id", &c.extras.kmsKey),
		params.Text("tags", &tags),
		params.Choice("client", &client, "stager", "sdk"))
	c.byDirs, c.sdk = list == "directories", client == "sdk"
	if err == nil {
		err = c.extras.check(&from, c.endpoint, tags)
	}
	return c, err
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
	if err == nil && t.Host == "" {
		err = backends.Errorf(backends.Invalid, "open", "", "an s3 URL starts with the bucket, as in s3://bucket/directory/; \"stager ls s3://\" lists the buckets")
	}
	if err != nil {
		return backends.Opened{}, err
	}
	b, opts, err := connect(ctx, t, set)
	if err != nil {
		return backends.Opened{}, err
	}
	if set.region == "" {
		if opts.Region, err = b.findRegion(ctx, opts); err != nil {
			return backends.Opened{}, err
		}
	}
	b.client = s3.New(opts)
	if b.reader, err = newReader(ctx, t.Host, b.client.Options(), b.transport, string(b.payer)); err != nil {
		return backends.Opened{}, err
	}
	b.extras, b.reader.customer = set.extras, set.extras.customer
	if b.requests = b.reader; set.sdk {
		b.requests = &viaSDK{b.client, b.name, b.payer}
	}
	b.decidesParts, b.matches = set.aws, set.aws
	b.decidesOne = set.aws || !set.anonymous && !b.versioned(ctx)
	return backends.Opened{Backend: b, Prefix: t.Path}, nil
}

// connect returns a bucket and the options of its client, whose region may be unknown. It sends no
// request.
func connect(ctx context.Context, t backends.Target, set settings) (*bucket, s3.Options, error) {
	transport, err := objectstore.NewTransport(set.caBundle)
	if err != nil {
		return nil, s3.Options{}, err
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
		HTTPSignerV4: new(sdkSigner),
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
	var shared aws.Config
	if opts.Region == "" || !set.anonymous && !inEnvironment(t.Options).HasKeys() {
		if shared, err = sharedConfig(ctx); err != nil {
			return nil, opts, backends.Errorf(backends.Invalid, "open", "", "cannot read the shared AWS configuration: %w", err)
		}
		opts.Region = cmp.Or(opts.Region, shared.Region)
	}
	if !set.anonymous {
		found := newRenewable(t.Options, shared.Credentials, func(ctx context.Context) (aws.CredentialsProvider, error) {
			again, err := sharedConfig(ctx)
			return again.Credentials, err
		})
		opts.Credentials, b.renew, b.rejected = found.cache, found.renew, found.rejected
	}
	return b, opts, nil
}

// sharedConfig reads the environment and the files of the AWS SDK. With a large AWS_CA_BUNDLE, that
// takes as long as the rest of opening a store. The SDK's own log lines, such as
// those on a metadata service that is not there, do not reach the user.
func sharedConfig(ctx context.Context) (aws.Config, error) {
	return config.LoadDefaultConfig(ctx, config.WithLogger(logging.Nop{}))
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
