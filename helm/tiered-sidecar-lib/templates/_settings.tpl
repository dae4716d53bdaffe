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
