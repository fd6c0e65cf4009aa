// Package http reads objects from web servers.
//
//	https://server/file.bin
//	https://server/directory/
//	https://server/directory/?manifest=SHA256SUMS
//	https://server/train-{000000..000146}.tar
//
// [Schemes] lists the parameters. Nothing is ever written.
//
// # Which objects
//
// A URL names one object or a directory. The objects of a directory come from
//
//   - the server's index pages: nginx (HTML and JSON), Apache, Caddy, and Python's http.server;
//   - a manifest: the output of sha256sum, or lines of JSON with "url", and optionally "size", "sha256"
//     and "key". A url is relative to the manifest or absolute, so this is how signed URLs are used.
//     The key is the path below the URL, or the last part of the path elsewhere;
//   - braces: {000..146} stands for numbers of that width, {a,b} for words.
//
// Each object costs a listing one HEAD request, for its exact size and version. A link in an index
// that leads out of its directory, or whose name is not that of a file, is not followed.
//
// # Reading
//
// The version is the ETag, or the time of the last change, or, where a server sends neither, the
// size. Reads carry If-Match and If-Range, or If-Unmodified-Since, and the version of the response
// is compared, since many servers ignore the condition. A server without ranges sends each object
// from its beginning. The checksum of a manifest becomes the checksum of the object.
//
// A response that is compressed is refused, unless the name of the object says so too (.gz). So is a
// web page in place of an object with another extension: it is an error or a login.
//
// # Credentials
//
// The first of these that fits, for the host of the URL:
//
//  1. a file in Options.Secrets named token (Bearer), or files named username and password (Basic);
//  2. a netrc file: netrc in Options.Secrets, $NETRC, or ~/.netrc. The user of the URL selects a
//     login. Its entries hold for other hosts of a manifest, too.
//
// After the server has rejected them, the files are read again. A redirect to another host carries
// no credentials, and one from HTTPS to HTTP is refused. Queries, which may be signatures, appear
// in no error. HTTP_PROXY, HTTPS_PROXY and NO_PROXY hold, as for all protocols over HTTP.
package http
