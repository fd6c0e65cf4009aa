// Package all provides the registry of all protocols that stager supports. No other package imports
// the protocols:
//
//	store, err := all.Registry().Open(ctx, "s3://bucket/models/", backends.Options{})
package all

import (
	"slices"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/az"
	"github.com/stager-dev/stager/backends/file"
	"github.com/stager-dev/stager/backends/ftp"
	"github.com/stager-dev/stager/backends/git"
	"github.com/stager-dev/stager/backends/gs"
	"github.com/stager-dev/stager/backends/hdfs"
	"github.com/stager-dev/stager/backends/hf"
	"github.com/stager-dev/stager/backends/http"
	"github.com/stager-dev/stager/backends/nfs"
	"github.com/stager-dev/stager/backends/oss"
	"github.com/stager-dev/stager/backends/s3"
	"github.com/stager-dev/stager/backends/sftp"
	"github.com/stager-dev/stager/backends/smb"
)

// Registry returns a registry of all protocols.
func Registry() *backends.Registry {
	return backends.NewRegistry(append(slices.Concat(http.Schemes(), az.Schemes(), ftp.Schemes(), git.Schemes()),
		file.Scheme(),
		gs.Scheme(),
		hdfs.Scheme(),
		hf.Scheme(),
		nfs.Scheme(),
		oss.Scheme(),
		s3.Scheme(),
		sftp.Scheme(),
		smb.Scheme(),
	)...)
}
