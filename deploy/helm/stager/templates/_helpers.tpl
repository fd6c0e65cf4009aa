{{- define "stager.name" -}}
{{- .Values.name }}{{ with .Values.revision }}-{{ . }}{{ end }}
{{- end }}

{{- define "stager.image" -}}
{{- $repository := required "set image.repository to the full name of stager's image, such as registry.example.com/stager" .Values.image.repository }}
{{- if .Values.image.digest }}
{{- printf "%s@%s" $repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" $repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}
{{- end }}

{{- /* The command line of the webhook. */ -}}
{{- define "stager.args" -}}
{{- $args := list "webhook" (printf "--name=%s" (include "stager.name" .)) (printf "--image=%s" (include "stager.image" .)) }}
{{- $with := .Values.injection }}
{{- with .Values.image.pullPolicy }}{{ $args = append $args (printf "--image-pull-policy=%s" .) }}{{ end }}
{{- with $with.podListen }}{{ $args = append $args (printf "--pod-listen=%s" .) }}{{ end }}
{{- if ne $with.finalize "auto" }}{{ $args = append $args (printf "--finalize=%s" $with.finalize) }}{{ end }}
{{- with $with.gate }}{{ $args = append $args (printf "--gate=%s" .) }}{{ end }}
{{- if ne $with.podSecurity "privileged" }}{{ $args = append $args (printf "--pod-security=%s" $with.podSecurity) }}{{ end }}
{{- with $with.kubernetes }}{{ $args = append $args (printf "--kubernetes=%s" .) }}{{ end }}
{{- if $with.adjustMemory }}{{ $args = append $args "--adjust-memory" }}{{ end }}
{{- range $name, $value := $with.containerEnv }}{{ $args = append $args (printf "--container-env=%s=%s" $name $value) }}{{ end }}
{{- if .Values.certManager }}{{ $args = append $args "--tls-dir=/tls" }}{{ end }}
{{- if not .Values.read.configMaps }}{{ $args = append $args "--no-config-maps" }}{{ end }}
{{- if not .Values.read.owners }}{{ $args = append $args "--no-owners" }}{{ end }}
{{- if not .Values.read.namespaces }}{{ $args = append $args "--no-namespaces" }}{{ end }}
{{- toJson $args }}
{{- end }}

{{- /* The namespaces that are served. */ -}}
{{- define "stager.namespaces" -}}
- {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, {{ .Release.Namespace | quote }}]}
{{- if .Values.revision }}
- {key: stager.dev/revision, operator: In, values: [{{ .Values.revision | quote }}]}
{{- else }}
- {key: stager.dev/revision, operator: DoesNotExist}
{{- end }}
{{- if .Values.optIn }}
- {key: stager.dev/injection, operator: In, values: [enabled]}
{{- end }}
{{- with .Values.namespaceSelector }}
{{ toYaml . }}
{{- end }}
{{- end }}
