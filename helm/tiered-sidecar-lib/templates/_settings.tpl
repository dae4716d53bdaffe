{{/*
The settings file: what the values say, over what a container needs. Only `settings` of the values goes in; keys of the store
never do, they come by a Secret. Spark is given two cores: without a limit of the processor it would take all of the node.
*/}}
{{- define "tiered-sidecar-lib.settings" -}}
{{- $container := dict
      "run" (dict "state_dir" "/var/lib/tiered-sidecar/state")
      "compaction" (dict "staging_dir" "/var/lib/tiered-sidecar/staging")
      "spark" (dict "local_dir" "/var/lib/tiered-sidecar/spark" "master" "local[2]")
      "http" (dict "bind" "0.0.0.0:9308")
      "log" (dict "format" "json") -}}
{{- toYaml (mergeOverwrite $container (deepCopy .Values.settings)) -}}
{{- end -}}

{{/* The address of the HTTP server, which the probe and the PodMonitor reach from outside the container. Takes the root context. */}}
{{- define "tiered-sidecar-lib.httpBind" -}}
{{- $http := default dict .Values.settings.http -}}
{{- $bind := toString (get (include "tiered-sidecar-lib.settings" . | fromYaml).http "bind") -}}
{{- if and (hasKey $http "bind") (not $http.bind) -}}
{{- fail "settings.http.bind is null, so there is no server for the liveness probe and Prometheus: leave it out, or write 0.0.0.0:9308" -}}
{{- end -}}
{{- if or (not (regexMatch "^(0\\.0\\.0\\.0|\\[::\\]):[1-9][0-9]{0,4}$" $bind)) (gt (int (regexFind "[0-9]+$" $bind)) 65535) -}}
{{- fail (printf "settings.http.bind is %s, which the liveness probe and Prometheus cannot reach: write 0.0.0.0:PORT or [::]:PORT; statusPage.existingSecret restricts access" $bind) -}}
{{- end -}}
{{- $bind -}}
{{- end -}}

{{/* Its port. */}}
{{- define "tiered-sidecar-lib.httpPort" -}}
{{- regexFind "[0-9]+$" (include "tiered-sidecar-lib.httpBind" .) -}}
{{- end -}}
