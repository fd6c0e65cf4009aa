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

// quote returns a value as JSON, which is also YAML.
func quote(v any) (string, error) {
	text, err := json.Marshal(v)
	return string(text), err
}

// Webhook describes an installation of the admission webhook.
type Webhook struct {
	Name            string // name of its objects
	Revision        string // suffix of the names; only namespaces that select this revision are served; "": none
	OptIn           bool   // serve only namespaces with [LabelNamespace]
	FailurePolicy   string // Fail or Ignore; "": Fail
	NoNamespace     bool   // the namespace exists and is left out of the manifest
	Namespace       string
	Image           string
	ImagePullPolicy string // "": the cluster's default
	Replicas        int
	Args            []string // arguments of stager after webhook and its name
	CertManager     bool     // cert-manager issues the certificate instead of the webhook itself
	ConfigMaps      bool     // read plans from ConfigMaps with the label stager.dev/plan
	Owners          bool     // read the owners of pods, for their number of pods
	Namespaces      bool     // read the namespaces of pods, for the enforced Pod Security level
}

// Namespace labels.
const (
	LabelNamespace = "stager.dev/injection" // enabled: serve the pods of this namespace, if OptIn is set
	LabelRevision  = "stager.dev/revision"  // the revision of the webhook that serves the pods of this namespace
)

// withRevision returns w with the revision in the names of its objects.
func (w Webhook) withRevision() Webhook {
	if w.Revision != "" {
		w.Name += "-" + w.Revision
	}
	if w.FailurePolicy == "" {
		w.FailurePolicy = "Fail"
	}
	return w
}

// Names returns the DNS names of the webhook's certificate.
func Names(name, namespace string) []string {
	return []string{fmt.Sprintf("%s.%s.svc", name, namespace)}
}

// Secret returns the name of the Secret with the certificate.
func Secret(name string) string { return name + "-tls" }

// SecretName returns the name of the Secret. Templates call it.
func (w Webhook) SecretName() string { return Secret(w.Name) }

// DNSNames returns the names of the certificate. Templates call it.
func (w Webhook) DNSNames() []string { return Names(w.Name, w.Namespace) }

// Command returns the container's command. Templates call it.
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

// YAML returns all manifests of the installation.
func (w Webhook) YAML() ([]byte, error) {
	parts := []string{"namespace", "rbac", "webhook", "warnings"}
	if w.NoNamespace {
		parts = parts[1:]
	}
	return w.fill(parts...)
}

// RBAC returns only the service account and its permissions.
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
