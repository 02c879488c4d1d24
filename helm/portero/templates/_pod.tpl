{{/* Parts that the Deployments, the migration Job and the test pod share. */}}

{{/* A volume of a Secret, readable by the pod's group only; of one key where `key` is given. Context: {name, secret, key}. */}}
{{- define "portero.secretVolume" -}}
- name: {{ .name }}
  secret:
    secretName: {{ .secret }}
    # 0440
    defaultMode: 288
    {{- with .key }}
    items:
      - key: {{ . | quote }}
        path: {{ . | quote }}
    {{- end }}
{{- end -}}

{{/* Context: a `database` block. */}}
{{- define "portero.databaseVolume" -}}
{{- $key := .urlKey | default .passwordKey -}}
{{- include "portero.secretVolume" (dict "name" "database" "secret" .existingSecret "key" $key) -}}
{{- end -}}

{{/* Names of a workload's mounts below /etc/portero and their volumes. Context: {root, workload}. */}}
{{- define "portero.volumes" -}}
{{- $values := .root.Values -}}
- name: config
  configMap:
    name: {{ printf "%s-%s" (include "portero.fullname" .root) .workload.component }}
- name: tmp
  emptyDir:
    sizeLimit: 64Mi
{{ include "portero.databaseVolume" $values.database }}
{{- with $values.redis.existingSecret }}
{{ include "portero.secretVolume" (dict "name" "redis" "secret" . "key" $values.redis.urlKey) }}
{{- end }}
{{- if .workload.keyring }}
{{ include "portero.secretVolume" (dict "name" "keyring" "secret" $values.keyring.existingSecret) }}
{{- end }}
{{- if or (has "stream" .workload.roles) (has "admin" .workload.roles) }}
{{- range $index, $issuer := $values.auth.issuers }}
{{- if $issuer.jwksSecret }}
{{ include "portero.secretVolume" (dict "name" (printf "jwks-%d" $index) "secret" $issuer.jwksSecret.name "key" $issuer.jwksSecret.key) }}
{{- else if $issuer.jwksConfigMap }}
- name: jwks-{{ $index }}
  configMap:
    name: {{ $issuer.jwksConfigMap.name }}
{{- end }}
{{- end }}
{{- with $values.auth.localIssuer.existingSecret }}
{{ include "portero.secretVolume" (dict "name" "local-issuer" "secret" . "key" $values.auth.localIssuer.key) }}
{{- end }}
{{- end }}
{{- with .workload.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Whole volumes, never a subPath: the kubelet keeps them up to date. Context: {root, workload}. */}}
{{- define "portero.volumeMounts" -}}
{{- $values := .root.Values -}}
- {name: config, mountPath: /etc/portero/config, readOnly: true}
- {name: tmp, mountPath: /tmp}
- {name: database, mountPath: /etc/portero/database, readOnly: true}
{{- if $values.redis.existingSecret }}
- {name: redis, mountPath: /etc/portero/redis, readOnly: true}
{{- end }}
{{- if .workload.keyring }}
- {name: keyring, mountPath: /etc/portero/keyring, readOnly: true}
{{- end }}
{{- if or (has "stream" .workload.roles) (has "admin" .workload.roles) }}
{{- range $index, $issuer := $values.auth.issuers }}
{{- if or $issuer.jwksSecret $issuer.jwksConfigMap }}
- {name: jwks-{{ $index }}, mountPath: /etc/portero/jwks/{{ $index }}, readOnly: true}
{{- end }}
{{- end }}
{{- if $values.auth.localIssuer.existingSecret }}
- {name: local-issuer, mountPath: /etc/portero/local-issuer, readOnly: true}
{{- end }}
{{- end }}
{{- with .workload.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Fields that every pod has. Context: {root, workload, account}. */}}
{{- define "portero.podCommon" -}}
serviceAccountName: {{ .account }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with (.root.Values.global | default dict).imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .workload.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .workload.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .workload.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .workload.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .workload.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{/* Built-in probes, or the ones that replace them; `false` means none. Context: the workload. */}}
{{- define "portero.probes" -}}
{{- $live := dict "httpGet" (dict "path" "/livez" "port" "management") -}}
{{- $ready := dict "httpGet" (dict "path" "/readyz" "port" "management") -}}
{{- $builtin := dict
  "liveness" (merge (dict "periodSeconds" 10 "timeoutSeconds" 3 "failureThreshold" 3) $live)
  "readiness" (merge (dict "periodSeconds" 5 "timeoutSeconds" 3 "failureThreshold" 2) $ready)
  "startup" (merge (dict "periodSeconds" 2 "timeoutSeconds" 3 "failureThreshold" 60) $live) -}}
{{- $probes := dict -}}
{{- range $kind := list "liveness" "readiness" "startup" -}}
{{- $probe := ternary (get $.probes $kind) (get $builtin $kind) (hasKey $.probes $kind) -}}
{{- if $probe -}}{{- $_ := set $probes (printf "%sProbe" $kind) $probe -}}{{- end -}}
{{- end -}}
{{- with $probes -}}{{- toYaml . -}}{{- end -}}
{{- end -}}

{{/* Seconds of the termination grace period. Context: {root, workload}. */}}
{{- define "portero.gracePeriod" -}}
{{- $needed := add (int .root.Values.shutdown.drainDelaySeconds) (int .workload.drainTimeoutSeconds) 10 -}}
{{- if kindIs "invalid" .workload.terminationGracePeriodSeconds -}}
{{- $needed -}}
{{- else -}}
{{- int .workload.terminationGracePeriodSeconds -}}
{{- end -}}
{{- end -}}

{{/* Fewest pods that run. Context: the workload. */}}
{{- define "portero.replicasMin" -}}
{{- ternary (int .autoscaling.minReplicas) (int .replicaCount) .autoscaling.enabled -}}
{{- end -}}
