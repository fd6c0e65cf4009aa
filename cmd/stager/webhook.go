package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/stager-dev/stager/stager"
	"github.com/stager-dev/stager/stager/admission"
	"github.com/stager-dev/stager/stager/admission/certs"
	"github.com/stager-dev/stager/stager/admission/kube"
	"github.com/stager-dev/stager/stager/admission/setup"
)

type webhookCmd struct {
	pods
	Name       string `help:"Name of the Service and MutatingWebhookConfiguration; the certificate's Secret is NAME-tls." default:"stager-webhook"`
	Reviews    string `help:"Address for the API server (TLS)." default:":8443"`
	Probes     string `help:"Address for /healthz, /readyz and /metrics." default:":9090"`
	TLSDir     string `help:"Directory with tls.crt and tls.key, renewed by another program. Default: self-issued." placeholder:"DIR"`
	ConfigMaps bool   `help:"Read plans from ConfigMaps labelled stager.dev/plan." default:"true" negatable:""`
	Owners     bool   `help:"Read the owner of a pod, which defines the number of pods." default:"true" negatable:""`
	Namespaces bool   `help:"Read the Pod Security level of namespaces, for pods with stager.dev/privileges. Otherwise --pod-security applies to all." default:"true" negatable:""`
}

// Help returns the detailed help.
func (webhookCmd) Help() string {
	return `Runs in the cluster and handles pods labelled stager.dev/inject: "true". Install it with:

    stager manifests webhook --image registry.example.com/stager:0.1.0 | kubectl apply -f -

It does what "stager inject" does. Pods that cannot work are rejected with a message, and warnings are returned to the client. The replicas issue and renew the certificate together.

    stager webhook --tls-dir /tls --no-config-maps --no-owners --no-namespaces    # needs nothing of the API server`
}

func (c webhookCmd) Run(ctx context.Context, log *slog.Logger) error {
	opts := c.options()
	server := &admission.Server{Linger: 5 * time.Second, Log: log}
	if c.TLSDir != "" {
		directory := &certs.Dir{Dir: c.TLSDir}
		if err := directory.Sync(ctx); err != nil {
			return &usageError{err}
		}
		server.Certificates = directory
	}
	server.Mutator = &admission.Mutator{}
	if c.TLSDir == "" || c.ConfigMaps || c.Owners || c.Namespaces {
		api, namespace, err := kube.InCluster(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"), kube.AccountDir)
		if errors.Is(err, fs.ErrNotExist) {
			return &usageError{fmt.Errorf("not in a pod with a service account (%w); run it in the cluster, as printed by stager manifests webhook, or use --tls-dir, --no-config-maps, --no-owners and --no-namespaces", err)}
		} else if err != nil {
			return err
		}
		if c.TLSDir == "" {
			server.Certificates = &certs.Keeper{
				API: api, Namespace: namespace, Secret: setup.Secret(c.Name), Configuration: c.Name,
				Names: setup.Names(c.Name, namespace), Log: log,
			}
		}
		if c.ConfigMaps {
			server.Plans = &admission.Plans{API: api}
			opts.ConfigMap = server.Plans.Find
		}
		if c.Owners {
			server.Mutator.Owner = (&admission.Owners{API: api}).Find
		}
		if c.Namespaces {
			server.Mutator.Level = (&admission.Levels{API: api}).Find
		}
	}
	server.Mutator.Options = opts
	reviews, err := net.Listen("tcp", c.Reviews)
	if err != nil {
		return &stager.PortError{Err: err}
	}
	probes, err := net.Listen("tcp", c.Probes)
	if err != nil {
		return errors.Join(&stager.PortError{Err: err}, reviews.Close())
	}
	if opts.Image == "" {
		warnNoImage(log) // not with each pod
	}
	log.Info("serving", "reviews", reviews.Addr(), "probes", probes.Addr())
	return server.Run(ctx, reviews, probes)
}
