// Package s3 implements Amazon S3 and compatible stores.
//
//	s3://bucket/directory/                                              on AWS
//	s3://bucket/directory/?endpoint=https://rgw.example.org:8443        anywhere else
//
// [Scheme] lists the parameters. The endpoint may also come from files in Options.Secrets or
// variables named AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL. On AWS the region of the bucket is
// detected; elsewhere it is AWS_REGION, or us-east-1.
//
// # Credentials
//
// The first of these sources that has any:
//
//  1. files in Options.Secrets named AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and optionally
//     AWS_SESSION_TOKEN, or one named credentials in the format of the AWS tools. They are read
//     again every few minutes, so a changed Secret takes effect;
//  2. the variables of the same names, from Options.Getenv;
//  3. the SDK's own chain: shared configuration, web identity (IRSA), container and instance roles.
//     For these the SDK reads the environment of the process.
//
// With ?anonymous=true requests are not signed.
//
// # Reading
//
// Objects and listings are requested without the SDK: this package signs the requests and parses
// the responses itself. For a small object the SDK cost more than everything else together. The SDK
// still resolves the endpoint and the credentials, and error responses become errors of its types.
// All other requests use the SDK, and with ?client=sdk these do as well.
//
// Versions are ETags. Every read carries If-Match. The ETag and the range of the response are
// compared with the request, since some servers ignore either. A read from offset 0 of an object
// without a known checksum requests the whole object and disconnects after the range, because only
// such a response contains the checksum of the whole object. Composite checksums (checksums of
// checksums) are not used. Neither is the MD5 that some ETags are: computing it costs more than
// everything else together.
//
// Keys that end in "/" are directory markers of graphical tools and gateways. They are not listed,
// whatever their size.
//
// A page whose keys are not in byte order comes from a server that walks directories. The listing
// then proceeds directory by directory, with the delimiter "/", and sorts each one;
// ?list=directories does so from the start. All keys that were already yielded must appear again,
// or the listing fails.
//
// # Writing
//
// Objects of up to 8 MiB are one request, larger ones a multipart upload. Neither is visible before
// Commit. Payloads are not signed but carry a CRC-64/NVME, which the store verifies, so no payload
// is hashed with SHA-256 only to sign it. Stores that refuse such checksums get none from then on,
// which is logged once; ?checksum= overrides it either way.
//
// ?sse= and ?tags= add headers to the requests that create objects and uploads, and to no others:
// stores refuse a GET of a managed key's object that has them. The exception is ?sse=customer, whose
// key goes with every request about the content or the attributes of an object.
//
// A Commit whose response was lost can be repeated. Each write carries a random value in the
// metadata, stager-write, which identifies its own object.
//
// # IfAbsent
//
// On AWS, If-None-Match decides atomically. Compatible stores may ignore the header and overwrite:
// Ceph 16 does so in a bucket with versioning, and everywhere when it completes a multipart upload.
// So the versioning of a bucket outside AWS is queried once, when it is opened. If it is enabled or
// unknown (s3:GetBucketVersioning), Capabilities.ConditionalCreate is false. In that case, and
// before completing a multipart upload, Commit checks whether the key exists, and two simultaneous
// writers may both succeed.
//
// # IfVersion
//
// On AWS, If-Match decides atomically. Elsewhere the header is not trusted: some servers ignore it,
// and Ceph 16 rejects even the right ETag. There, writers exclude each other with claim objects,
// see [backends.Claim], created with If-None-Match. Their names begin with .stager-tmp-claim- and
// List hides them. Where If-None-Match does not decide either, Commit compares before it writes,
// and Capabilities.Guard is GuardNone.
package s3
