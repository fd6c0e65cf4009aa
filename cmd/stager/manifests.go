package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"

	"github.com/stager-dev/stager/stager/admission/setup"
	"github.com/stager-dev/stager/stager/jobspec"
)

type manifestsCmd struct {
	Webhook manifestsWebhookCmd `cmd:"" help:"The admission webhook and everything it needs."`
	Map     manifestsMapCmd     `cmd:"" help:"A MutatingAdmissionPolicy for one plan; needs Kubernetes 1.36 and no webhook."`
	RBAC    manifestsRbacCmd    `cmd:"" name:"rbac" help:"Only the webhook's service account and RBAC."`
}

// installation has the flags for the webhook's objects.
type installation struct {
	Name        string `help:"Name of the webhook's objects." default:"stager-webhook"`
	Revision    string `help:"Install next to other revisions; serves only namespaces labelled stager.dev/revision: NAME." placeholder:"NAME"`
	Namespace   string `short:"n" help:"Namespace of the webhook; run nothing else there." default:"stager"`
	CertManager bool   `help:"Let cert-manager issue the certificate. Default: self-issued."`
	ConfigMaps  bool   `help:"Allow pods to name plans in ConfigMaps labelled stager.dev/plan." default:"true" negatable:""`
	Owners      bool   `help:"Allow reading the owner of a pod, which defines the number of pods." default:"true" negatable:""`
	Namespaces  bool   `help:"Allow reading the Pod Security level of namespaces, for pods with stager.dev/privileges." default:"true" negatable:""`
}

func (i installation) webhook() setup.Webhook {
	return setup.Webhook{Name: i.Name, Revision: i.Revision, Namespace: i.Namespace, CertManager: i.CertManager, ConfigMaps: i.ConfigMaps, Owners: i.Owners, Namespaces: i.Namespaces}
}

type manifestsWebhookCmd struct {
	shape
	installation
	pods
	Replicas        int    `help:"Number of replicas." default:"2"`
	OptIn           bool   `help:"Serve only namespaces labelled stager.dev/injection: enabled. Default: all namespaces."`
	CreateNamespace bool   `help:"Also print the namespace. Disable it if other revisions share the namespace." default:"true" negatable:""`
	FailurePolicy   string `help:"If no replica responds: Fail rejects labelled pods (their Job retries); Ignore starts them without data, with a warning." enum:"Fail,Ignore" default:"Fail"`
}

// Help returns the detailed help.
func (manifestsWebhookCmd) Help() string {
	return `The flags of inject apply to the containers that the webhook adds to pods.

    stager manifests webhook --image registry.example.com/stager:0.1.0 | kubectl apply -f -
    stager manifests webhook --image … --pod-security restricted --cert-manager

Then any pod can request data with a label and annotations:

    labels: {stager.dev/inject: "true"}
    annotations: {stager.dev/in.train: "s3://b/train/ -> /data/train"}`
}

func (c manifestsWebhookCmd) Run(log *slog.Logger) error {
	if c.Replicas < 1 {
		return &usageError{fmt.Errorf("replicas must be at least 1 (got %d); 2 is recommended", c.Replicas)}
	}
	if c.Revision != "" && !revisionName.MatchString(c.Revision) {
		return &usageError{fmt.Errorf("invalid revision %q; use lower-case letters, digits and -, such as v0-2-0", c.Revision)}
	}
	w := c.webhook()
	w.OptIn, w.FailurePolicy, w.NoNamespace = c.OptIn, c.FailurePolicy, !c.CreateNamespace
	if c.Image = c.reference(); c.Image == "" {
		warnNoImage(log)
		c.Image = jobspec.DefaultImage
	}
	w.Image, w.ImagePullPolicy, w.Replicas, w.Args = c.Image, c.ImagePullPolicy, c.Replicas, c.args()
	return c.printed(w.YAML())
}

// revisionName is valid as a part of a Kubernetes object name and as a label value.
var revisionName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$`)

// args returns the flags as on a command line, without those that have no effect.
func (p pods) args() []string {
	args := []string{"--image=" + p.Image}
	for _, f := range []struct{ name, value, usual string }{
		{"image-pull-policy", p.ImagePullPolicy, ""},
		{"pod-listen", p.PodListen, ""},
		{"finalize", p.Finalize, jobspec.FinalizeAuto},
		{"gate", p.Gate, ""},
		{"pod-security", p.PodSecurity, "privileged"},
		{"kubernetes", p.Kubernetes, ""},
	} {
		if f.value != f.usual {
			args = append(args, "--"+f.name+"="+f.value)
		}
	}
	if p.AdjustMemory {
		args = append(args, "--adjust-memory")
	}
	for _, name := range slices.Sorted(maps.Keys(p.ContainerEnv)) {
		args = append(args, "--container-env="+name+"="+p.ContainerEnv[name])
	}
	return args
}

type manifestsRbacCmd struct {
	shape
	installation
}

func (c manifestsRbacCmd) Run() error { return c.printed(c.webhook().RBAC()) }

type manifestsMapCmd struct {
	shape
	pods
	Plan string `help:"StagePlan file." required:"" placeholder:"PLAN"`
	Name string `help:"Value of the pods' label stager.dev/plan." required:""`
}

// Help returns the detailed help.
func (manifestsMapCmd) Help() string {
	return `The API server injects stager into the pods of Jobs labelled stager.dev/plan: NAME, for their first container. The policy contains the plan, so each plan needs a policy. Annotations and wrap need the webhook.

    stager manifests map --name imagenet --plan plan.yaml --image registry.example.com/stager:0.1.0 | kubectl apply -f -`
}

func (c manifestsMapCmd) Run(log *slog.Logger) error {
	plan, err := os.ReadFile(c.Plan)
	if errors.Is(err, fs.ErrNotExist) {
		return &usageError{fmt.Errorf("the plan %s does not exist", c.Plan)}
	} else if err != nil {
		return err
	}
	opts := c.options()
	done := watchImage(&opts, log)
	out, warnings, err := setup.Policy(c.Name, plan, opts)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		log.Warn(w)
	}
	return done(c.documents(out))
}

// printed prints the documents, unless err is set.
func (s shape) printed(out []byte, err error) error {
	if err != nil {
		return err
	}
	return s.documents(out)
}
