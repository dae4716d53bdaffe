{{/*
The memory limit of the sidecar. Archiving takes some 256 MiB and the buffers of one upload. Compaction on Spark takes a JVM with its
heap and what it needs besides, and a Python process for each core of a local master. `doctor` reckons the same. Measured: docs/reference/sizing.md.
*/}}

{{/*
`resources` of the sidecar with a memory limit and an equal request, and a request of ephemeral storage. Less memory than is needed is
refused; without a limit there is room besides, in steps of 256 MiB. Takes the root context.
*/}}
{{- define "tiered-sidecar-lib.resources" -}}
{{- $resources := deepCopy (default dict .Values.sidecar.resources) -}}
{{- $needed := int (include "tiered-sidecar-lib.neededMebibytes" .) -}}
{{- $limits := default dict $resources.limits -}}
{{- $requests := default dict $resources.requests -}}
{{- $requested := 0 -}}
{{- if $requests.memory -}}
{{- $requested = int (include "tiered-sidecar-lib.mebibytes" $requests.memory) -}}
{{- end -}}
{{- if $limits.memory -}}
{{- $given := int (include "tiered-sidecar-lib.mebibytes" $limits.memory) -}}
{{- if lt $given $needed -}}
{{- fail (printf "sidecar.resources.limits.memory is %v, and these settings need %d MiB: leave it out to get enough, or lower spark.driver_memory_bytes, the cores of spark.master or store.s3.part_bytes in settings" $limits.memory $needed) -}}
{{- end -}}
{{- if gt $requested $given -}}
{{- fail (printf "sidecar.resources.requests.memory is %v, more than limits.memory, %v: leave the request out to get the same" $requests.memory $limits.memory) -}}
{{- end -}}
{{- else -}}
{{- $limit := mul 256 (div (add $needed 640 255) 256) -}}
{{- $limits = merge (dict "memory" (ternary $requests.memory (printf "%dMi" $limit) (gt $requested (int $limit)))) $limits -}}
{{- end -}}
{{- $requests = merge $requests (dict "memory" $limits.memory) -}}
{{- $resources = merge (dict "limits" $limits "requests" $requests) $resources -}}
{{- include "tiered-sidecar-lib.withEphemeralStorage" (dict "root" . "resources" $resources) -}}
{{- end -}}

{{- define "tiered-sidecar-lib.neededMebibytes" -}}
{{- $settings := include "tiered-sidecar-lib.settings" . | fromYaml -}}
{{- $store := default dict (dig "store" "s3" dict $settings) -}}
{{- $uploads := div (mul (int64 (default 16777216 $store.part_bytes)) (int64 (default 4 $store.concurrency))) 1048576 -}}
{{- $needed := add 256 $uploads -}}
{{- if include "tiered-sidecar-lib.usesSpark" $settings -}}
{{- $spark := $settings.spark -}}
{{- $heap := div (int64 (default 1073741824 $spark.driver_memory_bytes)) 1048576 -}}
{{- $worker := div (int64 (default 335544320 $spark.worker_memory_bytes)) 1048576 -}}
{{- $needed = add $needed $heap 384 (mul $worker (int (include "tiered-sidecar-lib.localCores" $spark.master))) -}}
{{- end -}}
{{- $needed -}}
{{- end -}}

{{/* Whether anything may be compacted, "" if not. Takes the settings. */}}
{{- define "tiered-sidecar-lib.compacts" -}}
{{- $compaction := default dict .compaction -}}
{{- if and $compaction.topics (ne (toString $compaction.enabled) "false") }}true{{ end -}}
{{- end -}}

{{/* Whether `run` may start a JVM, "" if not. Takes the settings. */}}
{{- define "tiered-sidecar-lib.usesSpark" -}}
{{- $engine := default "auto" (default dict .spark).engine -}}
{{- if or (eq (toString $engine) "spark") (and (include "tiered-sidecar-lib.compacts" .) (ne (toString $engine) "local")) }}true{{ end -}}
{{- end -}}

{{/* Cores of `local[N]`; 0 of a cluster's master, whose executors have memory of their own. Takes spark.master. */}}
{{- define "tiered-sidecar-lib.localCores" -}}
{{- if not (hasPrefix "local" .) -}}
0
{{- else if regexMatch "^local\\[[0-9]+" . -}}
{{- regexFind "[0-9]+" . -}}
{{- else if contains "*" . -}}
{{- fail (printf "settings.spark.master is %s, all cores of the node, which the broker needs: set a number, such as local[2]" .) -}}
{{- else -}}
1
{{- end -}}
{{- end -}}

{{/* A quantity of Kubernetes, such as 3Gi, in MiB, rounded down. */}}
{{- define "tiered-sidecar-lib.mebibytes" -}}
{{- $text := toString . -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- $unit := regexFind "[A-Za-z]*$" $text -}}
{{- if or (not (hasKey $units $unit)) (not (regexMatch "^[0-9]+(\\.[0-9]+)?[A-Za-z]*$" $text)) -}}
{{- fail (printf "%s is not a size such as 1536Mi or 3Gi" $text) -}}
{{- end -}}
{{- div (int64 (mulf (trimSuffix $unit $text | float64) (get $units $unit))) 1048576 -}}
{{- end -}}
