{{/* Parts that the Deployments, the migration Job and the test pod share. */}}

{{/* A volume of a Secret, readable by the pod's group only; of some keys where they are given. Context: {name, secret, key, keys}. */}}
{{- define "portero.secretVolume" -}}
- name: {{ .name }}
  secret:
    secretName: {{ .secret }}
    # 0440
    defaultMode: 288
    {{- with .keys | default (ternary (list .key) list (not (empty .key))) }}
    items:
      {{- range . }}
      - key: {{ . | quote }}
        path: {{ . | quote }}
      {{- end }}
    {{- end }}
{{- end -}}

{{/* A volume of authorities, or nothing. Context: {name, ca: {existingSecret, configMap, key}}. */}}
{{- define "portero.authoritiesVolume" -}}
{{- if .ca.existingSecret -}}
{{- include "portero.secretVolume" (dict "name" .name "secret" .ca.existingSecret "key" .ca.key) -}}
{{- else if .ca.configMap -}}
- name: {{ .name }}
  configMap:
    name: {{ .ca.configMap }}
{{- end -}}
{{- end -}}

{{/* Volumes of a listener's TLS, or nothing. Context: {name, tls}. */}}
{{- define "portero.tlsVolumes" -}}
{{- if .tls.existingSecret }}
{{ include "portero.secretVolume" (dict "name" (printf "%s-tls" .name) "secret" .tls.existingSecret "keys" (list .tls.certKey .tls.keyKey)) }}
{{- with .tls.clientCa.existingSecret }}
{{ include "portero.secretVolume" (dict "name" (printf "%s-clients" $.name) "secret" . "key" $.tls.clientCa.key) }}
{{- with include "portero.authoritiesVolume" (dict "name" (printf "%s-clients-crl" $.name) "ca" $.tls.clientCrl) }}
{{ . }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Mounts of a listener's TLS, or nothing. Context: {name, tls}. */}}
{{- define "portero.tlsMounts" -}}
{{- if .tls.existingSecret }}
- {name: {{ .name }}-tls, mountPath: /etc/portero/{{ .name }}-tls, readOnly: true}
{{- if .tls.clientCa.existingSecret }}
- {name: {{ .name }}-clients, mountPath: /etc/portero/{{ .name }}-clients, readOnly: true}
{{- if or .tls.clientCrl.existingSecret .tls.clientCrl.configMap }}
- {name: {{ .name }}-clients-crl, mountPath: /etc/portero/{{ .name }}-clients-crl, readOnly: true}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Context: a `database` block. */}}
{{- define "portero.databaseVolume" -}}
{{- $key := .urlKey | default .passwordKey -}}
{{- include "portero.secretVolume" (dict "name" "database" "secret" .existingSecret "key" $key) -}}
{{- with include "portero.authoritiesVolume" (dict "name" "database-ca" "ca" .ca) }}
{{ . }}
{{- end }}
{{- end -}}

{{/* Context: a `database` block. */}}
{{- define "portero.databaseMounts" -}}
- {name: database, mountPath: /etc/portero/database, readOnly: true}
{{- if or .ca.existingSecret .ca.configMap }}
- {name: database-ca, mountPath: /etc/portero/database-ca, readOnly: true}
{{- end }}
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
{{- with include "portero.authoritiesVolume" (dict "name" "redis-ca" "ca" $values.redis.ca) }}
{{ . }}
{{- end }}
{{- with $values.redis.client.existingSecret }}
{{- $keys := list $values.redis.client.certKey $values.redis.client.keyKey }}
{{ include "portero.secretVolume" (dict "name" "redis-client" "secret" . "keys" $keys) }}
{{- end }}
{{- if not $values.keyring.unprotected }}
{{ include "portero.secretVolume" (dict "name" "keyring" "secret" $values.keyring.existingSecret) }}
{{- end }}
{{- if has "edge" .workload.roles }}
{{- include "portero.tlsVolumes" (dict "name" "edge" "tls" $values.tls.edge) }}
{{- end }}
{{- if or (has "stream" .workload.roles) (has "admin" .workload.roles) }}
{{- include "portero.tlsVolumes" (dict "name" "grpc" "tls" $values.tls.grpc) }}
{{- if $values.auth.kubernetes.enabled }}
# The only service account token in any pod: with it the API server is asked for its public keys, and nothing else.
- name: kubernetes
  projected:
    defaultMode: 288
    sources:
      - serviceAccountToken:
          path: token
          expirationSeconds: 3600
      - configMap:
          name: kube-root-ca.crt
          items:
            - {key: ca.crt, path: ca.crt}
{{- end }}
{{- range $index, $issuer := $values.auth.issuers }}
{{- with $issuer.jwksCaConfigMap }}
- name: jwks-ca-{{ $index }}
  configMap:
    name: {{ .name }}
{{- end }}
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
{{ include "portero.databaseMounts" $values.database }}
{{- if $values.redis.existingSecret }}
- {name: redis, mountPath: /etc/portero/redis, readOnly: true}
{{- end }}
{{- if or $values.redis.ca.existingSecret $values.redis.ca.configMap }}
- {name: redis-ca, mountPath: /etc/portero/redis-ca, readOnly: true}
{{- end }}
{{- if $values.redis.client.existingSecret }}
- {name: redis-client, mountPath: /etc/portero/redis-client, readOnly: true}
{{- end }}
{{- if not $values.keyring.unprotected }}
- {name: keyring, mountPath: /etc/portero/keyring, readOnly: true}
{{- end }}
{{- if has "edge" .workload.roles }}
{{- include "portero.tlsMounts" (dict "name" "edge" "tls" $values.tls.edge) }}
{{- end }}
{{- if or (has "stream" .workload.roles) (has "admin" .workload.roles) }}
{{- include "portero.tlsMounts" (dict "name" "grpc" "tls" $values.tls.grpc) }}
{{- if $values.auth.kubernetes.enabled }}
- {name: kubernetes, mountPath: /etc/portero/kubernetes, readOnly: true}
{{- end }}
{{- range $index, $issuer := $values.auth.issuers }}
{{- if $issuer.jwksCaConfigMap }}
- {name: jwks-ca-{{ $index }}, mountPath: /etc/portero/jwks-ca/{{ $index }}, readOnly: true}
{{- end }}
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
