// Package s3 speaks to Amazon S3 and to the many stores that speak like it.
//
//	s3://bucket/directory/                                              on AWS
//	s3://bucket/directory/?endpoint=https://rgw.example.org:8443        anywhere else
//
// [Scheme] says which parameters there are. The endpoint may also come from files in
// Options.Secrets or variables named AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL. On AWS the
// bucket's region is found by asking; elsewhere it is that of AWS_REGION, or us-east-1.
//
// # Credentials
//
// The first of these that gives any:
//
//  1. files in Options.Secrets named AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
//     perhaps AWS_SESSION_TOKEN, or one named credentials as the AWS tools write it;
//     they are read again every few minutes, so a changed Secret is followed;
//  2. the variables of the same names, by Options.Getenv;
//  3. the SDK's own chain: shared configuration, web identity (IRSA), container and
//     instance roles. The SDK reads the process's environment for these.
//
// With ?anonymous=true requests are not signed.
//
// # Reading
//
// Objects and lists are asked for without the SDK, by requests that are signed here and
// answers that are read here: of a small object it cost more than all else together.
// Where the bucket is, and whose credentials count, it still says, and what refuses
// becomes one of its errors. All other requests are its own.
//
// Versions are ETags. Every read carries If-Match, and the answer's ETag and range
// are compared with what was asked for, since there are servers that ignore either.
// A read from offset 0 of an object whose checksum is not known asks for the whole
// object and hangs up after the range, because only such an answer tells the whole
// object's checksum. Sums of sums ("composite") are not used, nor is the MD5 that
// some ETags are: computing it costs more than all else together.
//
// Keys that end in "/" are the directories of graphical tools and gateways; they are not
// listed, whatever their size.
//
// A page whose keys are out of byte order is from a server that walks directories. The
// list is then made directory by directory, by the delimiter "/", each sorted; ?list=directories
// does so from the beginning. Keys that were yielded before must come again, all of
// them, or the list fails.
//
// # Writing
//
// Objects of up to 8 MiB are one request, larger ones a multipart upload; neither is
// seen before Commit. Payloads are not signed but carry a CRC-64/NVME, which the
// store checks, so that nothing is hashed by SHA-256 only to sign it. Stores that
// refuse such checksums get none from then on, which is logged once;
// ?checksum= fixes it either way.
//
// A Commit whose answer was lost can be repeated: each write carries a random word
// of metadata, stager-write, by which it knows its own object from another's.
//
// # IfAbsent
//
// On AWS If-None-Match decides in one step. Stores that speak like it may ignore the
// header, and overwrite: Ceph 16 does so in a bucket with versioning, and everywhere
// when it puts an object together from parts. So a bucket that is not on AWS is asked
// once for its versioning, when it is opened; where it has that, or does not tell
// (s3:GetBucketVersioning), Facts.ConditionalCreate is false. There, and before it
// puts parts together, Commit looks whether the key is free, and of two writers at
// the same moment both may succeed.
//
// # IfVersion
//
// On AWS If-Match decides in one step. Elsewhere the header is not trusted: servers
// ignore it, and Ceph 16 refuses it even for the right ETag. There writers exclude each
// other by claim objects, see [backends.Claim], which If-None-Match creates. Their names
// begin with .stager-tmp-claim- and List leaves them out. Where If-None-Match does not
// decide either, Commit compares before it writes, and Facts.Guard is GuardNone.
package s3
