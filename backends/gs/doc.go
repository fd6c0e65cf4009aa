// Package gs implements Google Cloud Storage.
//
//	gs://bucket/directory/
//
// [Scheme] lists the parameters. The client is our own and uses the JSON API for listings, metadata
// and conditional publishing, and the XML API for the bytes. STORAGE_EMULATOR_HOST selects an
// emulator, which receives no credentials. ?endpoint= and CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE
// select another endpoint of the service, such as a private one.
//
// # Credentials
//
// The first of these sources that has any:
//
//  1. a file GOOGLE_APPLICATION_CREDENTIALS in Options.Secrets, with the JSON of a service account
//     or of another kind, or the path of such a file;
//  2. the variable of that name, with a path or with the JSON itself, as of a Secret that a pod
//     imports as its environment. Workload identity federation is such a file, of type
//     external_account;
//  3. the file that "gcloud auth application-default login" writes;
//  4. the metadata server of the machine or, in GKE, of the service account of the pod.
//     GCE_METADATA_HOST is its address, and NO_GCE_CHECK=true disables this source.
//
// An access token is used for most of its life. The sources are read again for the next one, and
// also if the store rejects a token, so a changed Secret takes effect.
//
// With ?anonymous=true requests carry no token.
//
// # Reading
//
// Versions are generations. Every read carries x-goog-if-generation-match, and the generation and
// the range of the response are compared with the request. Every response contains the CRC-32C of
// the whole object. Objects with Content-Encoding: gzip are read as they are stored.
//
// # Writing
//
// Objects of up to 8 MiB are one request, larger ones a multipart upload of the XML API. Neither is
// visible before Commit. Every request carries the CRC-32C of its bytes, so the store rejects
// corrupted ones, and the CRC-32C of the finished object is compared with that of all bytes.
//
// Multipart uploads support no preconditions. So a large object with IfAbsent or IfVersion is
// uploaded under a temporary name, which is the key with .stager-tmp- and 26 characters appended.
// Composing it to the final key publishes it by one conditional request, which copies no bytes. List
// hides temporary names, and Sweep finds them.
//
// A Commit whose response was lost can be repeated. Each write carries a random value in the
// metadata, stager-write, which identifies its own object.
//
// # Servers without the XML API
//
// Some emulators, such as fake-gcs-server, have the JSON API alone, or the XML API for reads alone. A
// response that is an error but not in XML shows that, once per store. Objects are then read by the JSON
// API, and written by one request each, of any size, which the server publishes atomically and under the
// precondition. The parts of a large object are only checksummed before Commit, and sent by it. There is
// nothing to resume, and Sweep finds nothing.
//
// # IfAbsent and IfVersion
//
// The store compares and replaces atomically, by ifGenerationMatch.
package gs
