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
func (w Webhook) YAML() ([]byte, error) { return w.fill("namespace", "rbac", "webhook", "warnings") }

// RBAC is the service account and its rights alone.
func (w Webhook) RBAC() ([]byte, error) { return w.fill("rbac") }

func (w Webhook) fill(parts ...string) ([]byte, error) {
	var out bytes.Buffer
	for _, part := range parts {
		if err := templates.ExecuteTemplate(&out, part+".yaml", w); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}
