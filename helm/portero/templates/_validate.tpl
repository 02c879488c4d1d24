{{/*
What the schema cannot say. All problems are collected and reported together. Context: root.
*/}}
{{- define "portero.validate" -}}
{{- $problems := list -}}
{{- $values := .Values -}}
{{- $workloads := include "portero.workloads" . | fromJson -}}
{{- if not $workloads -}}
{{- $problems = append $problems "roles: enable at least one of edge, stream and admin" -}}
{{- end -}}

{{- $databases := dict "database" $values.database -}}
{{- if and (ne $values.migrations.mode "none") $values.migrations.database -}}
{{- $merged := include "portero.merge" (dict "base" $values.database "over" $values.migrations.database) | fromJson -}}
{{- $_ := set $databases "migrations.database" $merged -}}
{{- end -}}
{{- range $path, $database := $databases -}}
{{- if not $database.existingSecret -}}
{{- $problems = append $problems (printf "%s.existingSecret: name the Secret with the database's password or URL" $path) -}}
{{- end -}}
{{- if and (not $database.urlKey) (not $database.host) -}}
{{- $problems = append $problems (printf "%s: give host, or urlKey for a Secret that holds a whole URL" $path) -}}
{{- end -}}
{{- end -}}

{{- if and $values.redis.url $values.redis.existingSecret -}}
{{- $problems = append $problems "redis: give url or existingSecret, not both" -}}
{{- end -}}
{{- if contains "@" $values.redis.url -}}
{{- $problems = append $problems "redis.url: a URL with credentials belongs in a Secret (redis.existingSecret)" -}}
{{- end -}}

{{- $keyring := and $values.keyring.existingSecret $values.keyring.active -}}
{{- if and $values.keyring.unprotected (or $values.keyring.existingSecret $values.keyring.active) -}}
{{- $problems = append $problems "keyring: unprotected excludes existingSecret and active" -}}
{{- else if not (or $keyring $values.keyring.unprotected) -}}
{{- $problems = append $problems "keyring: name the Secret that holds the keys (existingSecret) and the key that encrypts (active); every role needs it" -}}
{{- end -}}

{{- range $listener := list "edge" "grpc" -}}
{{- $tls := get $values.tls $listener -}}
{{- if and $tls.clientCa.existingSecret (not $tls.existingSecret) -}}
{{- $problems = append $problems (printf "tls.%s.clientCa: needs tls.%s.existingSecret: only who speaks TLS can ask for certificates" $listener $listener) -}}
{{- end -}}
{{- if and $tls.clientCrl.existingSecret $tls.clientCrl.configMap -}}
{{- $problems = append $problems (printf "tls.%s.clientCrl: give existingSecret or configMap, not both" $listener) -}}
{{- end -}}
{{- if and (or $tls.clientCrl.existingSecret $tls.clientCrl.configMap) (not $tls.clientCa.existingSecret) -}}
{{- $problems = append $problems (printf "tls.%s.clientCrl: needs tls.%s.clientCa: only whose certificate is asked for can be revoked" $listener $listener) -}}
{{- end -}}
{{- end -}}
{{- range $path, $ca := dict "database.ca" $values.database.ca "redis.ca" $values.redis.ca -}}
{{- if and $ca.existingSecret $ca.configMap -}}
{{- $problems = append $problems (printf "%s: give existingSecret or configMap, not both" $path) -}}
{{- end -}}
{{- end -}}
{{- $redisTls := or $values.redis.ca.existingSecret $values.redis.ca.configMap $values.redis.client.existingSecret -}}
{{- if and $redisTls (not $values.redis.existingSecret) (not (hasPrefix "rediss://" $values.redis.url)) -}}
{{- $problems = append $problems "redis: certificates need a URL that begins with rediss://" -}}
{{- end -}}
{{- range $subject := $values.auth.kubernetes.subjects -}}
{{- if not (hasPrefix "system:serviceaccount:" $subject.subject) -}}
{{- $problems = append $problems (printf "auth.kubernetes.subjects: %q is no service account: system:serviceaccount:NAMESPACE:NAME" $subject.subject) -}}
{{- end -}}
{{- end -}}

{{- range $key := list "url" "password" -}}
{{- if hasKey ($values.config.database | default dict) $key -}}
{{- $problems = append $problems (printf "config.database.%s: credentials belong in a Secret (database.existingSecret)" $key) -}}
{{- end -}}
{{- end -}}
{{- if hasKey ($values.config.redis | default dict) "url" -}}
{{- $problems = append $problems "config.redis.url: use redis.url or redis.existingSecret" -}}
{{- end -}}

{{- range $name, $workload := $workloads -}}
{{- $path := ternary "single" (printf "roles.%s" $name) (eq $name "all") -}}
{{- $checksTokens := or (has "stream" $workload.roles) (has "admin" $workload.roles) -}}
{{- $believes := or $values.auth.issuers $values.auth.kubernetes.enabled $values.auth.localIssuer.existingSecret -}}
{{- if and $checksTokens (not $believes) -}}
{{- $problems = append $problems "auth: give issuers, kubernetes.enabled or localIssuer.existingSecret; stream and admin refuse callers without" -}}
{{- end -}}
{{- $needed := add (int $values.shutdown.drainDelaySeconds) (int $workload.drainTimeoutSeconds) 10 -}}
{{- $grace := include "portero.gracePeriod" (dict "root" $ "workload" $workload) | int -}}
{{- if lt $grace (int $needed) -}}
{{- $problems = append $problems (printf "%s.terminationGracePeriodSeconds: %d is less than drain delay + drain timeout + 10 = %d" $path $grace (int $needed)) -}}
{{- end -}}
{{- if gt (int $workload.autoscaling.minReplicas) (int $workload.autoscaling.maxReplicas) -}}
{{- $problems = append $problems (printf "%s.autoscaling: minReplicas is more than maxReplicas" $path) -}}
{{- end -}}
{{- $scaled := $workload.autoscaling -}}
{{- if and $scaled.enabled (not $scaled.metrics) (eq (int $scaled.targetCPUUtilizationPercentage) 0) (eq (int $scaled.targetMemoryUtilizationPercentage) 0) -}}
{{- $problems = append $problems (printf "%s.autoscaling: give a target or metrics" $path) -}}
{{- end -}}
{{- end -}}

{{- if and $values.roles.edge.ingress.enabled (not $values.roles.edge.ingress.hosts) -}}
{{- $problems = append $problems "roles.edge.ingress.hosts: give at least one host" -}}
{{- end -}}

{{- with uniq $problems -}}
{{- fail (printf "\n\nThese values cannot be installed:\n  - %s\n" (join "\n  - " .)) -}}
{{- end -}}
{{- end -}}
