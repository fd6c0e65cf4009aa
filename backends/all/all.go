// Package all is the list of protocols that stager speaks. It alone imports them.
package all

import (
	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/file"
	"github.com/stager-dev/stager/backends/hdfs"
	"github.com/stager-dev/stager/backends/nfs"
	"github.com/stager-dev/stager/backends/oss"
	"github.com/stager-dev/stager/backends/s3"
	"github.com/stager-dev/stager/backends/smb"
)

// Registry knows every protocol.
func Registry() *backends.Registry {
	return backends.NewRegistry(
		file.Scheme(),
		hdfs.Scheme(),
		nfs.Scheme(),
		oss.Scheme(),
		s3.Scheme(),
		smb.Scheme(),
	)
}
