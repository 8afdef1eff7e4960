{{- define "mirror.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-mirror" .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "mirror.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "mirror.labels" -}}
{{ include "mirror.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "mirror.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- /* The budget in MiB: the last one of the arguments. */ -}}
{{- define "mirror.budget" -}}
{{- $budget := .Values.budget -}}
{{- $isNext := false -}}
{{- range .Values.extraArgs -}}
{{- if $isNext -}}
{{- $budget = . -}}
{{- else if hasPrefix "--budget=" . -}}
{{- $budget = trimPrefix "--budget=" . -}}
{{- end -}}
{{- $isNext = eq . "--budget" -}}
{{- end -}}
{{- $budget | int -}}
{{- end -}}

{{- /* Memory in MiB. The budget leaves out the fragmentation of the heap, responses, connections and reviews. */ -}}
{{- define "mirror.memory" -}}
{{- $requested := (.Values.resourceRequests | default dict).memory -}}
{{- if $requested -}}
{{ $requested }}
{{- else if .Values.memory -}}
{{ .Values.memory }}Mi
{{- else -}}
{{ add (div (mul (include "mirror.budget" . | int) 5) 4) 256 }}Mi
{{- end -}}
{{- end -}}

{{- /* The rules for names such as pods, deployments.apps or deployments/scale.apps. */ -}}
{{- define "mirror.rules" -}}
{{- $groups := dict -}}
{{- range . -}}
{{- $parts := splitn "." 2 . -}}
{{- $group := $parts._1 | default "" -}}
{{- $_ := set $groups $group (append (get $groups $group | default list) $parts._0) -}}
{{- end -}}
{{- range $group := keys $groups | sortAlpha }}
- apiGroups: [{{ $group | quote }}]
  resources: {{ get $groups $group | uniq | toJson }}
  verbs: [get, list, watch]
{{- end -}}
{{- end -}}

{{- /*
The names of the definitions of custom resources, as JSON. The group of a custom resource has a dot. Built-in groups may
have one too: their resources have no definition, so a rule for the name grants nothing.
*/ -}}
{{- define "mirror.definitions" -}}
{{- $names := list -}}
{{- range .Values.resources -}}
{{- if contains "." ((splitn "." 2 .)._1 | default "") -}}
{{- $names = append $names . -}}
{{- end -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{- define "mirror.subjects" -}}
subjects:
  - kind: ServiceAccount
    name: {{ include "mirror.name" . }}
    namespace: {{ .Release.Namespace }}
{{- end -}}
