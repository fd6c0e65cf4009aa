module github.com/stager-dev/stager/e2e

go 1.26.0

require (
	github.com/dustin/go-humanize v1.1.0
	github.com/opencontainers/go-digest v1.0.0
	github.com/opencontainers/image-spec v1.1.1
	github.com/stager-dev/stager v0.0.0-00010101000000-000000000000
	golang.org/x/crypto/x509roots/fallback v0.0.0-20261030153154-30a33513ff6d
	golang.org/x/sys v0.49.0
)

require github.com/hanwen/go-fuse/v2 v2.12.1

require (
	github.com/rogpeppe/go-internal v1.16.0
	golang.org/x/tools v0.49.0 // indirect
)

replace github.com/stager-dev/stager => ../
