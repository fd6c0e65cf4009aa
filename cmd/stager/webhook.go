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
	Name       string `help:"Of its Service, of its MutatingWebhookConfiguration, and with -tls behind it of the Secret with its certificate." default:"stager-webhook"`
	Reviews    string `help:"Address for the API server, by TLS." default:":8443"`
	Probes     string `help:"Address for /healthz, /readyz and /metrics." default:":9090"`
	TLSDir     string `help:"Folder with tls.crt and tls.key, which another program renews; without it the webhook makes its own." placeholder:"DIR"`
	ConfigMaps bool   `help:"Read the plans of ConfigMaps with the label stager.dev/plan, for pods that name one." default:"true" negatable:""`
	Owners     bool   `help:"Read the Job of a pod that is one of several, which knows of how many." default:"true" negatable:""`
	Namespaces bool   `help:"Read which level of Pod Security a namespace enforces, for pods with stager.dev/privileges; without it --pod-security holds for all." default:"true" negatable:""`
}

// Help tells how it comes into a cluster.
func (webhookCmd) Help() string {
	return `It runs in the cluster, and is asked about pods with the label stager.dev/inject: "true":

    stager manifests webhook --image REGISTRY/stager:TAG | kubectl apply -f -

What it does to a pod is what "stager inject" does. A pod that cannot be served is refused with a sentence, and warnings reach whoever creates it. The certificate is made and renewed by the replicas together.

    stager webhook --tls-dir /tls --no-config-maps --no-owners --no-namespaces    # needs nothing of the API server`
}

func (c webhookCmd) Run(ctx context.Context, log *slog.Logger) error {
	opts := c.options()
	server := &admission.Server{Linger: 5 * time.Second, Log: log}
	if c.TLSDir != "" {
		folder := &certs.Folder{Dir: c.TLSDir}
		if err := folder.Sync(ctx); err != nil {
			return &usageError{err}
		}
		server.Certificates = folder
	}
	server.Mutator = &admission.Mutator{}
	if c.TLSDir == "" || c.ConfigMaps || c.Owners || c.Namespaces {
		api, namespace, err := kube.InCluster(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"), kube.AccountDir)
		if errors.Is(err, fs.ErrNotExist) {
			return &usageError{fmt.Errorf("this is no pod with a service account (%w); run it in the cluster, as stager manifests webhook prints it, or give --tls-dir, --no-config-maps, --no-owners and --no-namespaces", err)}
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
	log.Info("serving", "reviews", reviews.Addr(), "probes", probes.Addr())
	return server.Run(ctx, reviews, probes)
}
