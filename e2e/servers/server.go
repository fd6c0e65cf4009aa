package servers

import (
	"context"
	"errors"
	"io"
)

// Server is a running server to which the worst can be done: an S3, Ceph, OSS,
// Azurite, Samba, Ganesha, HDFS, web, SSH, FTP or Git server.
type Server interface {
	// Env are the variables by which stager finds it, with credentials.
	Env() []string
	// Kill ends it as a power cut would, with all connections. What it has acknowledged
	// it still has after Start, at the same address.
	Kill() error
	Start(ctx context.Context) error
	// Freeze keeps it from answering, while its connections stay and new ones are
	// taken, until Thaw.
	Freeze() error
	Thaw() error
	// Close ends it for good and removes what it made.
	Close() error
}

var _, _, _, _, _, _, _, _, _, _, _, _ Server = (*S3)(nil), (*Ceph)(nil), (*OSS)(nil), (*GS)(nil), (*Azurite)(nil), (*Samba)(nil), (*Ganesha)(nil), (*HDFS)(nil), (*Web)(nil), (*SSHD)(nil), (*FTP)(nil), (*Git)(nil)

// closeUnlessStarted ends what there is of a server whose start has failed.
func closeUnlessStarted[S any, C interface {
	*S
	io.Closer
}](server *C, err *error) {
	if *err != nil {
		*err = errors.Join(*err, (*server).Close())
		*server = nil
	}
}
