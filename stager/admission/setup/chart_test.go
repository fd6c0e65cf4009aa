package setup

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stager-dev/stager/stager/internal/golden"
)

// chartHead begins the templates of the chart that are written here.
const chartHead = `{{- /* From stager/admission/setup/templates/FILE, by "go test ./stager/admission/setup -update". */ -}}
{{- $name := include "stager.name" . | quote }}
{{- $secret := printf "%s-tls" (include "stager.name" .) | quote }}
{{- $namespace := .Release.Namespace | quote }}
`

// namespaceRules are the conditions for namespaces in warnings.yaml. The chart has more of them.
const namespaceRules = `      - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, {{quote .Namespace}}]}
{{- if .Revision}}
      - {key: stager.dev/revision, operator: In, values: [{{quote .Revision}}]}
{{- else}}
      - {key: stager.dev/revision, operator: DoesNotExist}
{{- end}}
{{- if .OptIn}}
      - {key: stager.dev/injection, operator: In, values: [enabled]}
{{- end}}
`

// inChart replaces what a template here reads by what Helm offers.
var inChart = strings.NewReplacer(
	namespaceRules, `      {{- include "stager.namespaces" . | nindent 6 }}`+"\n",
	"{{quote .Name}}", "{{ $name }}", "{{quote .Namespace}}", "{{ $namespace }}", "{{quote .SecretName}}", "{{ $secret }}",
	"{{- if or .ConfigMaps .Owners .Namespaces (not .CertManager)}}", "{{- if or .Values.read.configMaps .Values.read.owners .Values.read.namespaces (not .Values.certManager) }}",
	"{{- if not .CertManager}}", "{{- if not .Values.certManager }}",
	"{{- if .ConfigMaps}}", "{{- if .Values.read.configMaps }}",
	"{{- if .Owners}}", "{{- if .Values.read.owners }}",
	"{{- if .Namespaces}}", "{{- if .Values.read.namespaces }}",
	"{{- end}}", "{{- end }}",
)

// The permissions and the policy of the chart are written from the templates here, so that a change is
// made once. Its other templates have values of their own between their lines; e2e/tools compares the
// objects that they become.
func TestChartTemplatesAreFromTheseTemplates(t *testing.T) {
	for _, name := range []string{"rbac.yaml", "warnings.yaml"} {
		text, err := files.ReadFile("templates/" + name)
		if err != nil {
			t.Fatal(err)
		}
		body := strings.TrimPrefix(strings.TrimSuffix(string(text), "---\n"), "---\n")
		got := strings.Replace(chartHead, "FILE", name, 1) + inChart.Replace(body)
		golden.File(t, filepath.Join("../../../deploy/helm/stager/templates", name), []byte(got))
	}
}
