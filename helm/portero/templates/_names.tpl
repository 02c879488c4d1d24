{{/* Names and labels. The context is always the root. */}}

{{- define "portero.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 40 characters, so that every suffix fits into 63. */}}
{{- define "portero.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "portero.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "portero.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "portero.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end -}}

{{/* The only labels in selectors. They may never change. Context: {root, component}. */}}
{{- define "portero.selector" -}}
app.kubernetes.io/name: {{ include "portero.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Labels of an object. Context: {root, component}. */}}
{{- define "portero.labels" -}}
{{ include "portero.selector" . }}
app.kubernetes.io/part-of: portero
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* metadata of an object but for its annotations' key. Context: {root, component, name, annotations}. */}}
{{- define "portero.metadata" -}}
name: {{ .name }}
namespace: {{ include "portero.namespace" .root }}
labels:
  {{- include "portero.labels" . | nindent 2 }}
{{- $annotations := merge (dict) (.annotations | default dict) (.root.Values.commonAnnotations | default dict) }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "portero.image" -}}
{{- $registry := (.Values.global | default dict).imageRegistry | default .Values.image.registry -}}
{{- $repository := ternary (printf "%s/%s" $registry .Values.image.repository) .Values.image.repository (ne $registry "") -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* Context: {root, account, name}: name of a service account, from its block and the derived name. */}}
{{- define "portero.serviceAccountName" -}}
{{- if .account.create -}}
{{- .account.name | default .name -}}
{{- else -}}
{{- .account.name | default "default" -}}
{{- end -}}
{{- end -}}
