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
	Webhook webhookManifests `cmd:"" help:"The admission webhook, with everything that it needs."`
	Map     policyManifests  `cmd:"" help:"A MutatingAdmissionPolicy for one plan: no pod runs for it. Kubernetes 1.36."`
	RBAC    rbacManifests    `cmd:"" name:"rbac" help:"The webhook's service account and its rights alone."`
}

// installation are the flags that say what the webhook's objects are.
type installation struct {
	Name        string `help:"Of the webhook's objects." default:"stager-webhook"`
	Revision    string `help:"Install beside other revisions: the name is part of the objects' names, and only namespaces with the label stager.dev/revision: NAME are served." placeholder:"NAME"`
	Namespace   string `short:"n" help:"Where the webhook runs; nothing else is to run there." default:"stager"`
	CertManager bool   `help:"Have cert-manager make the certificate; without it the webhook makes its own."`
	ConfigMaps  bool   `help:"Let pods name plans of ConfigMaps with the label stager.dev/plan." default:"true" negatable:""`
	Owners      bool   `help:"Let the webhook read the Job of a pod that is one of several, which knows of how many." default:"true" negatable:""`
	Namespaces  bool   `help:"Let the webhook read which level of Pod Security a namespace enforces, for pods with stager.dev/privileges." default:"true" negatable:""`
}

func (i installation) webhook() setup.Webhook {
	return setup.Webhook{Name: i.Name, Revision: i.Revision, Namespace: i.Namespace, CertManager: i.CertManager, ConfigMaps: i.ConfigMaps, Owners: i.Owners, Namespaces: i.Namespaces}
}

type webhookManifests struct {
	installation
	pods
	Replicas        int    `help:"How many pods serve it." default:"2"`
	OptIn           bool   `help:"Serve only namespaces with the label stager.dev/injection: enabled. Without it a label of the pod is enough."`
	CreateNamespace bool   `help:"Print the namespace, too. Without it other revisions in the namespace stay when what is printed is deleted." default:"true" negatable:""`
	FailurePolicy   string `help:"What becomes of a pod with the label stager.dev/inject: true when no replica answers: Fail refuses it, and its Job tries again; Ignore lets it run without its data, and warns." enum:"Fail,Ignore" default:"Fail"`
}

// Help shows what is typed.
func (webhookManifests) Help() string {
	return `The flags that inject has are for the containers that the webhook puts into pods.

    stager manifests webhook --image registry.example.com/stager:0.1.0 | kubectl apply -f -
    stager manifests webhook --image … --pod-security restricted --cert-manager

From then on a pod asks for data by a label and annotations, whoever creates it:

    labels: {stager.dev/inject: "true"}
    annotations: {stager.dev/in.train: "s3://b/train/ -> /data/train"}`
}

func (c webhookManifests) Run() error {
	if c.Replicas < 1 {
		return &usageError{fmt.Errorf("%d replicas serve nothing; two are a good number", c.Replicas)}
	}
	if c.Revision != "" && !revisionName.MatchString(c.Revision) {
		return &usageError{fmt.Errorf("%q is not the name of a revision; use lower-case letters, digits and -, such as v0-2-0", c.Revision)}
	}
	w := c.webhook()
	w.OptIn, w.FailurePolicy, w.NoNamespace = c.OptIn, c.FailurePolicy, !c.CreateNamespace
	w.Image, w.ImagePullPolicy, w.Replicas, w.Args = c.Image, c.ImagePullPolicy, c.Replicas, c.args()
	return printed(w.YAML())
}

// revisionName is a part of the names of Kubernetes' objects, and a label's value.
var revisionName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$`)

// args are the flags as they are typed, without those that say nothing.
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

type rbacManifests struct {
	installation
}

func (c rbacManifests) Run() error { return printed(c.webhook().RBAC()) }

type policyManifests struct {
	pods
	Plan string `help:"The StagePlan." required:"" placeholder:"PLAN"`
	Name string `help:"What the label stager.dev/plan of pods is to say." required:""`
}

// Help tells what it can do.
func (policyManifests) Help() string {
	return `The API server itself puts stager into the pods of Jobs that have the label stager.dev/plan: NAME. The first container works with the data. The plan is a part of the policy, so that there is one policy a plan; annotations are not read, and wrap is not possible: the webhook can do both.

    stager manifests map --name imagenet --plan plan.yaml --image registry.example.com/stager:0.1.0 | kubectl apply -f -`
}

func (c policyManifests) Run(log *slog.Logger) error {
	plan, err := os.ReadFile(c.Plan)
	if errors.Is(err, fs.ErrNotExist) {
		return &usageError{fmt.Errorf("the plan %s does not exist", c.Plan)}
	} else if err != nil {
		return err
	}
	out, warnings, err := setup.Policy(c.Name, plan, c.options())
	if err != nil {
		return err
	}
	for _, w := range warnings {
		log.Warn(w)
	}
	return printed(out, nil)
}

// printed prints what was made.
func printed(out []byte, err error) error {
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(out)
	return err
}
