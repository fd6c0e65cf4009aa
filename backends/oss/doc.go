// Package oss speaks to Alibaba Cloud's Object Storage Service.
//
//	oss://bucket/directory/?region=cn-hangzhou
//	oss://bucket/directory/?endpoint=oss-cn-hangzhou-internal.aliyuncs.com
//
// [Scheme] says which parameters there are. Endpoint and region may also come from
// files in Options.Secrets or variables named OSS_ENDPOINT and OSS_REGION. Either is enough on Alibaba Cloud: the endpoint of a
// region is its public one over HTTPS, and an endpoint of Alibaba's own names its
// region. Machines in the region reach it for less by the endpoint with "-internal".
//
// Requests carry signature V4 when the region is known and V1 otherwise;
// ?signature= insists on one.
//
// # Credentials
//
// The first of these that gives any:
//
//  1. files in Options.Secrets named OSS_ACCESS_KEY_ID, OSS_ACCESS_KEY_SECRET and
//     perhaps OSS_SESSION_TOKEN; they are read again every few minutes, so a changed
//     Secret is followed;
//  2. the variables of the same names, by Options.Getenv, as Alibaba's guide has them;
//  3. the RAM role of the ECS instance, from its metadata service: the role that
//     ALIBABA_CLOUD_ECS_METADATA names, or the only one there is. A token from there
//     is renewed before it ends. ALIBABA_CLOUD_ECS_METADATA_DISABLED=true does
//     without; OSS_ECS_METADATA_ENDPOINT says that the service is somewhere else than
//     http://100.100.100.200.
//
// A token that the store calls expired is fetched anew from files and roles, since
// another may be there by now.
//
// With ?anonymous=true requests are not signed.
//
// # Reading
//
// Versions are ETags. Every read carries If-Match, and the answer's ETag and range
// are compared with what was asked for: OSS answers a range that it does not like
// with the whole object, unless asked for standard behaviour, which we do. The
// CRC-64/ECMA of the whole object comes with every answer, of a range too, but not
// for objects older than the feature.
//
// Keys that end in "/" and hold nothing are the directories of graphical tools; they
// are not listed.
//
// # Writing
//
// Objects of up to 8 MiB are one request, larger ones a multipart upload; neither is
// seen before Commit. What arrived is compared with what was sent by CRC-64: of each
// part before the object is made of them, and of the object after. The answer to a
// single request comes when the object is already there, so that carries its MD5 as
// well, by which OSS refuses it.
//
// A Commit whose answer was lost can be repeated: each write carries a random word
// of metadata, stager-write, by which it knows its own object from another's.
//
// # IfAbsent
//
// x-oss-forbid-overwrite decides in one step, but OSS ignores it in a bucket whose
// versioning is enabled or suspended. So the bucket is asked once, when it is opened;
// where it has versioning, or does not tell (oss:GetBucketVersioning),
// Facts.ConditionalCreate is false: Commit then looks before it writes, and of two
// writers at the same moment both may succeed.
//
// # IfVersion
//
// OSS has no If-Match for writes. Writers exclude each other by claim objects, see
// [backends.Claim], which x-oss-forbid-overwrite creates. Their names begin with
// .stager-tmp-claim- and List leaves them out. In a bucket with versioning Commit
// compares before it writes, and Facts.Guard is GuardNone.
//
// # The SDK
//
// It signs and spells requests and reads answers. It never repeats a request and
// checks no CRC of what it streams; both are done here and by Store. What it makes
// of answers that say no loses the status and Retry-After of those that are not XML,
// so they are read before it sees them (transport.go).
package oss
