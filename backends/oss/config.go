package oss

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/aliyun/aliyun-oss-go-sdk/oss"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
	"github.com/stager-dev/stager/backends/internal/params"
)

// Scheme returns the scheme of oss:// URLs.
func Scheme() backends.Scheme {
	return backends.Scheme{
		Name:    "oss",
		Summary: "Alibaba Cloud Object Storage Service",
		Example: "oss://bucket/directory/?region=cn-hangzhou",
		Params: []backends.Param{
			{Name: "endpoint", Summary: "the server's URL or host; else OSS_ENDPOINT", Default: "the region's public one, over HTTPS"},
			{Name: "region", Summary: "the bucket's region, as in cn-hangzhou; else OSS_REGION", Default: "from the endpoint"},
			{Name: "signature", Summary: "v1 or v4; auto means v4 if the region is known", Default: "auto"},
			{Name: "cname", Summary: "true if the endpoint is a custom domain of the bucket", Default: "false"},
			{Name: "anonymous", Summary: "true sends requests unsigned, for public buckets", Default: "false"},
			{Name: "ca-bundle", Summary: "a PEM file of certificate authorities to trust; else OSS_CA_BUNDLE", Default: "the system's"},
		},
		Credentials: "Set OSS_ACCESS_KEY_ID and OSS_ACCESS_KEY_SECRET, and OSS_SESSION_TOKEN for a temporary key, mount files of these names, give the ECS instance a RAM role, or add ?anonymous=true for a public bucket.",
		Open:        open,
		Buckets:     listBuckets,
	}
}

// settings are the parsed parameters of a Target.
type settings struct {
	endpoint  string // including its scheme
	unset     bool   // the endpoint is derived from the region
	region    string // "" if unknown
	version   oss.AuthVersionType
	cname     bool
	anonymous bool
	caBundle  string
}

func parse(t backends.Target) (settings, error) {
	invalid := func(format string, args ...any) (settings, error) {
		return settings{}, backends.Errorf(backends.Invalid, "open", "", format, args...)
	}
	from := objectstore.Lookup{Target: t}
	if t.User != "" || t.Host != "" && (strings.Contains(t.Host, ":") || oss.CheckBucketName(t.Host) != nil) {
		return invalid("an oss URL starts with the bucket, of 3 to 63 letters a-z, digits and \"-\", as in oss://bucket/directory/; set the server with ?endpoint=")
	}
	c := settings{
		endpoint: from.First("endpoint", "OSS_ENDPOINT"),
		region:   from.First("region", "OSS_REGION"),
		caBundle: from.First("ca-bundle", "OSS_CA_BUNDLE"),
		version:  oss.AuthV1,
	}
	if from.Unread != nil {
		return invalid("cannot read the files with endpoint and region: %w", from.Unread)
	}
	if strings.ContainsFunc(c.region, notInRegion) {
		return invalid("a region looks like cn-hangzhou")
	}
	c.region = strings.TrimPrefix(c.region, "oss-") // the form in consoles and endpoints
	if c.endpoint == "" {
		if c.region == "" {
			return invalid("the bucket's location is unknown: set ?region=cn-hangzhou, ?endpoint=https://host, OSS_REGION or OSS_ENDPOINT")
		}
		c.endpoint, c.unset = "https://oss-"+c.region+".aliyuncs.com", true
	}
	if !strings.Contains(c.endpoint, "://") {
		c.endpoint = "https://" + c.endpoint
	}
	u, err := objectstore.ParseEndpoint(c.endpoint)
	if err != nil || strings.Trim(u.Path, "/") != "" {
		return invalid("the endpoint must look like https://host:port")
	}
	c.endpoint = u.Scheme + "://" + u.Host
	if c.region == "" {
		c.region = regionOf(u.Hostname())
	}
	signature := "auto"
	if err := params.Read(t.Params,
		params.Bool("anonymous", &c.anonymous),
		params.Bool("cname", &c.cname),
		params.Choice("signature", &signature, "auto", "v1", "v4")); err != nil {
		return settings{}, err
	}
	if signature == "v4" && c.region == "" {
		return invalid("signature v4 requires the region: set ?region=")
	}
	if signature != "v1" && c.region != "" {
		c.version = oss.AuthV4
	}
	return c, nil
}

func notInRegion(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
}

// regionOf returns the region in an endpoint of Alibaba, such as
// oss-cn-hangzhou-internal.aliyuncs.com; "" if there is none.
func regionOf(host string) string {
	name, domain, _ := strings.Cut(host, ".")
	region, ok := strings.CutPrefix(name, "oss-")
	if domain != "aliyuncs.com" || !ok || region == "accelerate" || strings.HasPrefix(region, "accelerate-") {
		return ""
	}
	return strings.TrimSuffix(region, "-internal")
}

// probeTimeout is the timeout of the versioning query when a bucket is opened.
const probeTimeout = 10 * time.Second

func open(ctx context.Context, t backends.Target) (backends.Opened, error) {
	b, err := newBucket(t)
	if err == nil && t.Host == "" {
		err = backends.Errorf(backends.Invalid, "open", "", "an oss URL starts with the bucket, as in oss://bucket/directory/; \"stager ls oss://\" lists the buckets")
	}
	if err != nil {
		return backends.Opened{}, err
	}
	if !b.credentials.anonymous {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		b.conditional = b.decidesAlone(ctx)
	}
	return backends.Opened{Backend: b, Prefix: t.Path}, nil
}

// newBucket returns a bucket without sending a request.
func newBucket(t backends.Target) (*bucket, error) {
	set, err := parse(t)
	if err != nil {
		return nil, err
	}
	base, err := objectstore.NewTransport(set.caBundle)
	if err != nil {
		return nil, err
	}
	b := &bucket{name: t.Host, transport: base, log: t.Log, credentials: newCredentials(t.Options, set.anonymous), unset: set.unset}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	client, err := oss.New(set.endpoint, "", "",
		oss.AuthVersion(set.version), oss.Region(set.region), oss.UseCname(set.cname),
		oss.EnableCRC(false), // our own checks cover more
		oss.SetCredentialsProvider(b.credentials),
		oss.HTTPClient(&http.Client{Transport: &transport{base, set.anonymous}, CheckRedirect: objectstore.NoRedirect}))
	if err != nil {
		return nil, backends.Errorf(backends.Invalid, "open", "", "the SDK rejects the configuration: %w", err)
	}
	b.client = &oss.Bucket{Client: *client, BucketName: b.name}
	return b, nil
}
