{{/*
What each workload is and how it is configured. Functions that return a structure return it as JSON.
*/}}

{{/*
Deep merge in which every value of `over` wins, false and 0 included (the built-in merge functions lose those).
Context: {base, over}. Lists are replaced.
*/}}
{{- define "portero.merge" -}}
{{- $result := deepCopy .base -}}
{{- range $key, $value := .over -}}
{{- $old := get $result $key -}}
{{- if and (kindIs "map" $value) (kindIs "map" $old) -}}
{{- $_ := set $result $key (include "portero.merge" (dict "base" $old "over" $value) | fromJson) -}}
{{- else -}}
{{- $_ := set $result $key $value -}}
{{- end -}}
{{- end -}}
{{- toJson $result -}}
{{- end -}}

{{/*
The workloads by name: {component, roles, and all keys of `defaults`}. Context: root.
*/}}
{{- define "portero.workloads" -}}
{{- $workloads := dict -}}
{{- $enabled := list -}}
{{- range $role := list "edge" "stream" "admin" -}}
{{- if (get $.Values.roles $role).enabled -}}{{- $enabled = append $enabled $role -}}{{- end -}}
{{- end -}}
{{- if eq .Values.topology "single" -}}
{{- $workload := include "portero.merge" (dict "base" .Values.defaults "over" .Values.single) | fromJson -}}
{{- $_ := set $workloads "all" (merge (dict "component" "all" "roles" $enabled) $workload) -}}
{{- else -}}
{{- range $role := $enabled -}}
{{- $over := omit (get $.Values.roles $role) "enabled" "service" "ingress" -}}
{{- $workload := include "portero.merge" (dict "base" $.Values.defaults "over" $over) | fromJson -}}
{{- $_ := set $workloads $role (merge (dict "component" $role "roles" (list $role)) $workload) -}}
{{- end -}}
{{- end -}}
{{- toJson $workloads -}}
{{- end -}}

{{/* The component whose pods serve a role. Context: {root, role}. */}}
{{- define "portero.componentOf" -}}
{{- ternary "all" .role (eq .root.Values.topology "single") -}}
{{- end -}}

{{/* [database] from a `database` block; Secrets are mounted at /etc/portero/database. */}}
{{- define "portero.config.database" -}}
{{- $config := dict -}}
{{- if .urlKey -}}
{{- $_ := set $config "url_file" (printf "/etc/portero/database/%s" .urlKey) -}}
{{- else -}}
{{- $password := printf "/etc/portero/database/%s" .passwordKey -}}
{{- $config = dict "host" .host "port" (int .port) "name" .name "user" .user "password_file" $password -}}
{{- end -}}
{{- if or .ca.existingSecret .ca.configMap -}}
{{- $_ := set $config "ca_file" (printf "/etc/portero/database-ca/%s" .ca.key) -}}
{{- end -}}
{{- toJson $config -}}
{{- end -}}

{{/* [redis]; empty without one. Context: the `redis` block. */}}
{{- define "portero.config.redis" -}}
{{- $config := dict -}}
{{- if .existingSecret -}}
{{- $_ := set $config "url_file" (printf "/etc/portero/redis/%s" .urlKey) -}}
{{- else if .url -}}
{{- $_ := set $config "url" .url -}}
{{- end -}}
{{- if $config -}}
{{- if or .ca.existingSecret .ca.configMap -}}
{{- $_ := set $config "ca_file" (printf "/etc/portero/redis-ca/%s" .ca.key) -}}
{{- end -}}
{{- if .client.existingSecret -}}
{{- $_ := set $config "client_cert_file" (printf "/etc/portero/redis-client/%s" .client.certKey) -}}
{{- $_ := set $config "client_key_file" (printf "/etc/portero/redis-client/%s" .client.keyKey) -}}
{{- end -}}
{{- end -}}
{{- toJson $config -}}
{{- end -}}

{{/* [edge.tls] or [grpc.tls]; empty without a Secret. Context: {name, tls}. */}}
{{- define "portero.config.tls" -}}
{{- $config := dict -}}
{{- if .tls.existingSecret -}}
{{- $_ := set $config "cert_file" (printf "/etc/portero/%s-tls/%s" .name .tls.certKey) -}}
{{- $_ := set $config "key_file" (printf "/etc/portero/%s-tls/%s" .name .tls.keyKey) -}}
{{- if .tls.clientCa.existingSecret -}}
{{- $_ := set $config "client_ca_file" (printf "/etc/portero/%s-clients/%s" .name .tls.clientCa.key) -}}
{{- if or .tls.clientCrl.existingSecret .tls.clientCrl.configMap -}}
{{- $_ := set $config "client_crl_file" (printf "/etc/portero/%s-clients-crl/%s" .name .tls.clientCrl.key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $config -}}
{{- end -}}

{{/* [auth] for streams and admin. Context: root. */}}
{{- define "portero.config.auth" -}}
{{- $issuers := list -}}
{{- range $index, $issuer := .Values.auth.issuers -}}
{{- $entry := dict "issuer" $issuer.issuer -}}
{{- with $issuer.audience -}}{{- $_ := set $entry "audience" . -}}{{- end -}}
{{- with $issuer.audiences -}}{{- $_ := set $entry "audiences" . -}}{{- end -}}
{{- with $issuer.grantsInToken -}}{{- $_ := set $entry "grants_in_token" . -}}{{- end -}}
{{- with $issuer.subjects -}}{{- $_ := set $entry "subjects" . -}}{{- end -}}
{{- with $issuer.jwksCaConfigMap -}}
{{- $_ := set $entry "ca_file" (printf "/etc/portero/jwks-ca/%d/%s" $index .key) -}}
{{- end -}}
{{- with $issuer.algorithms -}}{{- $_ := set $entry "algorithms" . -}}{{- end -}}
{{- with $issuer.jwksUrl -}}{{- $_ := set $entry "jwks_url" . -}}{{- end -}}
{{- with $issuer.jwksSecret | default $issuer.jwksConfigMap -}}
{{- $_ := set $entry "jwks_file" (printf "/etc/portero/jwks/%d/%s" $index .key) -}}
{{- end -}}
{{- $issuers = append $issuers $entry -}}
{{- end -}}
{{- with .Values.auth.kubernetes -}}
{{- if .enabled -}}
{{- $entry := dict "issuer" .issuer "audience" .audience "algorithms" (list "RS256") -}}
{{- $_ := set $entry "jwks_url" "https://kubernetes.default.svc/openid/v1/jwks" -}}
{{- $_ := set $entry "ca_file" "/etc/portero/kubernetes/ca.crt" -}}
{{- $_ := set $entry "bearer_token_file" "/etc/portero/kubernetes/token" -}}
{{- with .subjects -}}{{- $_ := set $entry "subjects" . -}}{{- end -}}
{{- $issuers = append $issuers $entry -}}
{{- end -}}
{{- end -}}
{{- $auth := dict -}}
{{- with $issuers -}}{{- $_ := set $auth "issuers" . -}}{{- end -}}
{{- if .Values.auth.localIssuer.existingSecret -}}
{{- $_ := set $auth "local_issuer_key_file" (printf "/etc/portero/local-issuer/%s" .Values.auth.localIssuer.key) -}}
{{- end -}}
{{- toJson $auth -}}
{{- end -}}

{{/* All settings of a workload. Context: {root, workload}. */}}
{{- define "portero.config" -}}
{{- $values := .root.Values -}}
{{- $listen := $values.listenAddress -}}
{{- $config := dict "roles" .workload.roles -}}
{{- $skew := printf "%ds" (int $values.management.clockSkewMaxSeconds) -}}
{{- $_ := set $config "management" (dict "listen" (printf "%s:9090" $listen) "clock_skew_max" $skew) -}}
{{- if has "edge" .workload.roles -}}
{{- $edge := dict "listen" (printf "%s:8080" $listen) -}}
{{- with $values.trustedProxies.networks -}}
{{- $_ := set $edge "trusted_proxies" . -}}
{{- $_ := set $edge "forwarded_header" $values.trustedProxies.header -}}
{{- end -}}
{{- with include "portero.config.tls" (dict "name" "edge" "tls" $values.tls.edge) | fromJson -}}
{{- $_ := set $edge "tls" . -}}
{{- end -}}
{{- $_ := set $config "edge" $edge -}}
{{- with $values.limits -}}{{- $_ := set $config "limits" . -}}{{- end -}}
{{- end -}}
{{- if or (has "stream" .workload.roles) (has "admin" .workload.roles) -}}
{{- $grpc := dict "listen" (printf "%s:50051" $listen) -}}
{{- with include "portero.config.tls" (dict "name" "grpc" "tls" $values.tls.grpc) | fromJson -}}
{{- $_ := set $grpc "tls" . -}}
{{- end -}}
{{- $_ := set $config "grpc" $grpc -}}
{{- $_ := set $config "auth" (include "portero.config.auth" .root | fromJson) -}}
{{- end -}}
{{- $_ := set $config "database" (include "portero.config.database" $values.database | fromJson) -}}
{{- with include "portero.config.redis" $values.redis | fromJson -}}
{{- $_ := set $config "redis" . -}}
{{- end -}}
{{- if $values.keyring.unprotected -}}
{{- $_ := set $config "keyring" (dict "unprotected" true) -}}
{{- else -}}
{{- $_ := set $config "keyring" (dict "path" "/etc/portero/keyring" "active" $values.keyring.active) -}}
{{- end -}}
{{- $telemetry := dict "log_format" $values.telemetry.logFormat "log_level" $values.telemetry.logLevel -}}
{{- with $values.telemetry.otlpEndpoint -}}{{- $_ := set $telemetry "otlp_endpoint" . -}}{{- end -}}
{{- $_ := set $config "telemetry" $telemetry -}}
{{- $delay := printf "%ds" (int $values.shutdown.drainDelaySeconds) -}}
{{- $timeout := printf "%ds" (int .workload.drainTimeoutSeconds) -}}
{{- $_ := set $config "shutdown" (dict "drain_delay" $delay "drain_timeout" $timeout) -}}
{{- include "portero.merge" (dict "base" $config "over" $values.config) -}}
{{- end -}}

{{/* A value as TOML on one line. Not by toToml: that writes whole numbers of values files as 20.0. */}}
{{- define "portero.toml.value" -}}
{{- if kindIs "string" . -}}
{{- toJson . -}}
{{- else if kindIs "bool" . -}}
{{- . -}}
{{- else if kindIs "slice" . -}}
{{- $items := list -}}
{{- range . -}}{{- $items = append $items (include "portero.toml.value" .) -}}{{- end -}}
{{- printf "[%s]" (join ", " $items) -}}
{{- else if kindIs "map" . -}}
{{- $pairs := list -}}
{{- range $key, $value := . -}}
{{- $pairs = append $pairs (printf "%s = %s" (toJson $key) (include "portero.toml.value" $value)) -}}
{{- end -}}
{{- printf "{ %s }" (join ", " $pairs) -}}
{{- else if kindIs "invalid" . -}}
{{- fail "config: null is no value in TOML; leave the key out" -}}
{{- else if eq (float64 .) (floor .) -}}
{{- int64 . -}}
{{- else -}}
{{- . -}}
{{- end -}}
{{- end -}}

{{/* Settings as a TOML file: plain keys first, then a table for each section. Context: the settings. */}}
{{- define "portero.toml" -}}
{{- range $key, $value := . -}}
{{- if not (kindIs "map" $value) }}
{{ $key }} = {{ include "portero.toml.value" $value }}
{{- end -}}
{{- end -}}
{{- range $section, $settings := . -}}
{{- if kindIs "map" $settings }}

[{{ $section }}]
{{- range $key, $value := $settings }}
{{ $key }} = {{ include "portero.toml.value" $value }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
