package stager

import (
	"errors"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/stager/api"
)

// servers are the API servers: one on the socket and optionally one on a port.
type servers struct {
	group errgroup.Group
	all   []*api.Server
}

// start serves on a listener and calls failed if serving fails.
func (s *servers) start(l net.Listener, server *api.Server, failed func(error)) {
	s.all = append(s.all, server)
	s.group.Go(func() error {
		err := server.Serve(l)
		if err != nil {
			failed(err)
		}
		return err
	})
}

func (s *servers) close() error {
	var errs []error
	for _, server := range s.all {
		errs = append(errs, server.Close())
	}
	return errors.Join(append(errs, s.group.Wait())...)
}

// serve serves the API on the socket, and on a port if one is configured.
func (d *Daemon) serve(socket net.Listener) (*servers, error) {
	apiServer := &api.API{
		Window: d.window, Windows: d.windows, Uploader: d.uploader,
		Snapshot: d.Snapshot, Drain: d.Drain, Save: d.Save, Restored: d.Restored, Rewind: d.rewind, Quality: d.quality, Log: d.log,
		Metrics: promhttp.HandlerFor(d.cfg.Metrics, promhttp.HandlerOpts{}),
	}
	s := new(servers)
	failed := func(err error) {
		d.log.Error("API server failed, exiting", "error", err)
		d.Drain(0)
	}
	onSocket, onPort := api.DefaultLimits(descriptors())
	start := func(l net.Listener, limits api.Limits, h http.Handler) {
		limits.Metrics = d.apiMetrics
		s.start(l, api.NewServer(h, limits, d.log), failed)
	}
	if d.cfg.Listen != "" {
		port, err := net.Listen("tcp", d.cfg.Listen)
		if err != nil {
			return nil, &PortError{err}
		}
		d.log.Info("API listening on a port", "address", port.Addr().String())
		host, _, _ := net.SplitHostPort(d.cfg.Listen) // already parsed when listening
		start(port, onPort, apiServer.Guarded(d.cfg.Token, host))
	}
	start(socket, onSocket, apiServer.Handler())
	return s, nil
}

// descriptors returns the limit of open files of this process.
func descriptors() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1024 // the default of most systems
	}
	return limit.Cur
}
