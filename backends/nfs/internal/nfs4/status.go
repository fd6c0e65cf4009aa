package nfs4

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv4"
)

// conditions lists the status bits of a response that are logged. Those of the backchannel are
// omitted: it serves delegations and layouts, which this client does not use.
var conditions = []struct {
	bit  uint32
	name string
}{
	{nfsv4.SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED, "the lease expired and all files were closed"},
	{nfsv4.SEQ4_STATUS_EXPIRED_SOME_STATE_REVOKED, "the lease expired and some files were closed"},
	{nfsv4.SEQ4_STATUS_ADMIN_STATE_REVOKED, "an operator closed files"},
	{nfsv4.SEQ4_STATUS_LEASE_MOVED, "the files moved to another server"},
	{nfsv4.SEQ4_STATUS_RESTART_RECLAIM_NEEDED, "the server was restarted"},
}

// noticed handles the status bits of a response. Closed files are reopened when their next use
// fails. Only one thing is urgent: a server that restarted and kept the session needs
// RECLAIM_COMPLETE.
func (c *Client) noticed(s *session, flags uint32) {
	was := c.flags.Swap(flags)
	if flags == was {
		return
	}
	var names []string
	for _, k := range conditions {
		if k.bit&flags&^was != 0 {
			names = append(names, k.name)
		}
	}
	if len(names) > 0 {
		c.cfg.Log.LogAttrs(context.Background(), slog.LevelInfo, "NFS server reports: "+strings.Join(names, ", "))
	}
	if flags&^was&nfsv4.SEQ4_STATUS_RESTART_RECLAIM_NEEDED != 0 {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(c.lease.Load()))
			defer cancel()
			if _, err := c.reclaimComplete(ctx, s); err != nil {
				c.cfg.Log.Debug("cannot complete reclaim", "error", err)
			}
		}()
	}
}
