// Package git reads one commit of a repository of a Git server.
//
//	git+https://host/org/repo                     the default branch
//	git+https://host/org/repo@v1.0//src/train     a directory of a tag, branch or commit
//	git+https://host/org/repo@refs/pull/7/head    any other reference, by its full name
//
// [Schemes] describes the URL parameters. The path ends at "//", after which the path in the repository
// follows. The first "@" in the path begins the revision. Nothing is ever written.
//
// # Fetching
//
// Opening a store resolves the revision to a commit and fetches that commit alone, without its history,
// by version 2 of Git's protocol over HTTP. So a run never mixes revisions, and after that no request
// is sent: an outage of the server does not matter. If the URL names a directory and the server can
// filter, the files outside of the directory are not fetched.
//
// All objects lie uncompressed in one temporary file without a name, which ends with the process. They
// are written as they arrive, and none is held in memory. A commit larger than ?max-size= is an error.
//
// This is why the client is stager's own. go-git v5 holds whole objects: with a file of 200 MB it took
// 1.1 to 1.3 GB of memory, where this package takes 42 MB. With 2,000 small files go-git takes 26 MB
// and is as fast or faster.
//
// # Objects
//
// An object is a file of the commit. Its version is its Git blob. The blob's hash was compared when it
// was fetched, and its SHA-256 is the checksum of the object. Links to files and directories of the
// repository are followed; other links and submodules are skipped. A file that is a pointer of Git LFS
// cannot be read. Permissions are lost. Names that another system could take for something else are an
// error: ".git", names with a backslash, and names that differ only in case.
//
// # Credentials
//
// Basic authentication by the files username and password in Options.Secrets, or GIT_USERNAME and
// GIT_PASSWORD, which may be a token. The user may also be part of the URL. A redirect to another host
// carries none.
package git
