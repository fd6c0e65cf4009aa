// Package oss implements Alibaba Cloud's Object Storage Service.
//
//	oss://bucket/directory/?region=cn-hangzhou
//	oss://bucket/directory/?endpoint=oss-cn-hangzhou-internal.aliyuncs.com
//
// [Scheme] lists the parameters. Endpoint and region may also come from files in Options.Secrets or
// variables named OSS_ENDPOINT and OSS_REGION. Either one suffices on Alibaba Cloud: the default
// endpoint of a region is its public one over HTTPS, and Alibaba's endpoints contain their region.
// From machines in the region, the endpoint with "-internal" is cheaper.
//
// Requests carry signature V4 if the region is known and V1 otherwise; ?signature= forces one.
//
// # Credentials
//
// The first of these sources that has any:
//
//  1. files in Options.Secrets named OSS_ACCESS_KEY_ID, OSS_ACCESS_KEY_SECRET and optionally
//     OSS_SESSION_TOKEN. They are read again every few minutes, so a changed Secret takes effect;
//  2. the variables of the same names, from Options.Getenv, as documented by Alibaba;
//  3. the RAM role of the ECS instance, from its metadata service: the role named by
//     ALIBABA_CLOUD_ECS_METADATA, or the only one. Its token is renewed before it expires.
//     ALIBABA_CLOUD_ECS_METADATA_DISABLED=true disables this source. OSS_ECS_METADATA_ENDPOINT
//     overrides the address of the service, http://100.100.100.200.
//
// If the store reports an expired token, files and roles are read again, since a newer token may be
// available.
//
// With ?anonymous=true requests are not signed.
//
// # Reading
//
// Versions are ETags. Every read carries If-Match. The ETag and the range of the response are
// compared with the request: OSS responds to an unsatisfiable range with the whole object, unless
// the request selects standard behaviour, as ours do. Every response contains the CRC-64/ECMA of
// the whole object, also for a range, except for objects older than that feature.
//
// Keys that end in "/" and have no bytes are directory markers of graphical tools. They are not
// listed.
//
// # Writing
//
// Objects of up to 8 MiB are one request, larger ones a multipart upload. Neither is visible before
// Commit. The CRC-64 of the received bytes is compared with that of the sent bytes: for each part
// before the upload is completed, and for the object afterwards. A single request publishes the
// object before its response arrives, so it also carries an MD5, which makes OSS reject corrupted
// bytes.
//
// A Commit whose response was lost can be repeated. Each write carries a random value in the
// metadata, stager-write, which identifies its own object.
//
// # IfAbsent
//
// x-oss-forbid-overwrite decides atomically, but OSS ignores it in a bucket whose versioning is
// enabled or suspended. So the versioning is queried once, when the bucket is opened. If the bucket
// has it, or it is unknown (oss:GetBucketVersioning), Capabilities.ConditionalCreate is false.
// Commit then checks before it writes, and two simultaneous writers may both succeed.
//
// # IfVersion
//
// OSS has no If-Match for writes. Writers exclude each other with claim objects, see
// [backends.Claim], created with x-oss-forbid-overwrite. Their names begin with .stager-tmp-claim-
// and List hides them. In a bucket with versioning, Commit compares before it writes, and
// Capabilities.Guard is GuardNone.
//
// # The SDK
//
// The SDK signs and encodes requests and parses responses. It never retries a request and checks no
// CRC of streams; this package and the Store do both. For error responses that are not XML,
// the SDK loses the status and Retry-After. So this package parses error responses first
// (transport.go).
package oss
