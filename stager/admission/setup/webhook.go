package setup

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"text/template"
)

//go:embed templates/*.yaml
var files embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{"quote": quote}).ParseFS(files, "templates/*.yaml"))

// quote writes a value as JSON, which is YAML, too.
func quote(v any) (string, error) {
	text, err := json.Marshal(v)
	return string(text), err
}

// Webhook is an installation of the admission webhook.
type Webhook struct {
	Name            string // of its objects
	Revision        string // "": none; else a part of their names, and only namespaces that ask for it are served
	OptIn           bool   // only namespaces with [LabelNamespace] are served
	FailurePolicy   string // Fail, or Ignore; "": Fail
	NoNamespace     bool   // the namespace is there, and not part of what is applied
	Namespace       string
	Image           string
	ImagePullPolicy string // "": as the cluster does
	Replicas        int
	Args            []string // of stager, behind webhook and its name
	CertManager     bool     // makes the certificate, instead of the webhook itself
	ConfigMaps      bool     // whose plans are read, with the label stager.dev/plan
	Owners          bool     // of pods are read, for the number of pods that they have
	Namespaces      bool     // of pods are read, for the level of Pod Security that they enforce
}

// Labels of namespaces.
const (
	LabelNamespace = "stager.dev/injection" // enabled: its pods are served where that is asked for
	LabelRevision  = "stager.dev/revision"  // which revision of the webhook serves its pods
)

// withRevision is w with the names of its objects.
func (w Webhook) withRevision() Webhook {
	if w.Revision != "" {
		w.Name += "-" + w.Revision
	}
	if w.FailurePolicy == "" {
		w.FailurePolicy = "Fail"
	}
	return w
}

// Names are those that the webhook's certificate is for.
func Names(name, namespace string) []string {
	return []string{fmt.Sprintf("%s.%s.svc", name, namespace)}
}

// Secret is the name of the Secret with the certificate.
func Secret(name string) string { return name + "-tls" }

// SecretName is for templates.
func (w Webhook) SecretName() string { return Secret(w.Name) }

// DNSNames is for templates.
func (w Webhook) DNSNames() []string { return Names(w.Name, w.Namespace) }

// Command is for templates.
func (w Webhook) Command() []string {
	args := append([]string{"webhook", "--name=" + w.Name}, w.Args...)
	if w.CertManager {
		args = append(args, "--tls-dir=/tls")
	}
	if !w.ConfigMaps {
		args = append(args, "--no-config-maps")
	}
	if !w.Owners {
		args = append(args, "--no-owners")
	}
	if !w.Namespaces {
		args = append(args, "--no-namespaces")
	}
	return args
}

// YAML is everything that is to be applied.
func (w Webhook) YAML() ([]byte, error) {
	parts := []string{"namespace", "rbac", "webhook", "warnings"}
	if w.NoNamespace {
		parts = parts[1:]
	}
	return w.fill(parts...)
}

// RBAC is the service account and its rights alone.
func (w Webhook) RBAC() ([]byte, error) { return w.fill("rbac") }

func (w Webhook) fill(parts ...string) ([]byte, error) {
	var out bytes.Buffer
	for _, part := range parts {
		if err := templates.ExecuteTemplate(&out, part+".yaml", w.withRevision()); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}
