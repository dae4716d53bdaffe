{{/*
The volume for journal, compiled kernels and work files of compaction. The kubelet evicts a whole pod, the broker with it, when more lies in
an emptyDir than its sizeLimit; so the limit is what the settings need, and less is refused. Sizes: docs/reference/sizing.md.
When the node's disk fills, the kubelet first evicts pods that use more ephemeral storage than they request. So each container requests what
the settings need, and has no limit: beyond one, its pod is evicted, too.
*/}}

{{/* The source of the volume. Takes the root context. */}}
{{- define "tiered-sidecar-lib.workVolume" -}}
{{- with .Values.sidecar.workVolume -}}
{{- toYaml . -}}
{{- else -}}
emptyDir:
  sizeLimit: {{ include "tiered-sidecar-lib.workSizeLimit" . }}
{{- end -}}
{{- end -}}

{{- define "tiered-sidecar-lib.workSizeLimit" -}}
{{- $needed := int (include "tiered-sidecar-lib.workMebibytes" (include "tiered-sidecar-lib.settings" . | fromYaml)) -}}
{{- with .Values.sidecar.workSizeLimit -}}
{{- if lt (int (include "tiered-sidecar-lib.mebibytes" .)) $needed -}}
{{- fail (printf "sidecar.workSizeLimit is %v, and compaction may need %d MiB; beyond the limit the kubelet evicts the broker's pod. Leave it out to get enough, lower settings.compaction.max_job_bytes, or set sidecar.workVolume, such as an ephemeral claim" . $needed) -}}
{{- end -}}
{{- . -}}
{{- else -}}
{{- printf "%dMi" (max 10240 $needed) -}}
{{- end -}}
{{- end -}}

{{/* 1 GiB, what may wait in staging, and one job for each of: copies of before_upload, what Spark exchanges; if they lie there. Takes the settings. */}}
{{- define "tiered-sidecar-lib.workMebibytes" -}}
{{- $jobs := 0 -}}
{{- $staging := 0 -}}
{{- $jobBytes := int64 (default 17179869184 (default dict .compaction).max_job_bytes) -}}
{{- if include "tiered-sidecar-lib.compacts" . -}}
{{- $here := "/var/lib/tiered-sidecar/" -}}
{{- if hasPrefix $here (toString .compaction.staging_dir) -}}
{{- $before := eq (toString .compaction.when) "before_upload" -}}
{{- range .compaction.topics -}}
{{- if and (kindIs "map" .) (eq (toString (get . "when")) "before_upload") -}}
{{- $before = true -}}
{{- end -}}
{{- end -}}
{{- $jobs = ternary 1 0 $before -}}
{{- $staging = int64 (default $jobBytes .compaction.max_staging_bytes) -}}
{{- end -}}
{{- if and (include "tiered-sidecar-lib.usesSpark" .) (hasPrefix $here (toString .spark.local_dir)) -}}
{{- $jobs = add $jobs 1 -}}
{{- end -}}
{{- end -}}
{{- add 1024 (div $staging 1048576) (mul $jobs (div $jobBytes 1048576)) -}}
{{- end -}}

{{/* Whether work files lie on the node's disk, "" if a volume of its own has them. Takes the root context. */}}
{{- define "tiered-sidecar-lib.workIsOnNode" -}}
{{- $other := .Values.sidecar.workVolume -}}
{{- if or (not $other) (hasKey $other "emptyDir") }}true{{ end -}}
{{- end -}}

{{/*
`resources` with a request of ephemeral storage: work files, unless a volume of its own has them, /tmp, and 512 MiB for the logs of the pod's
containers. Takes a dict: root, resources, work (false where that volume is not mounted), compacts (false where nothing is compacted).
*/}}
{{- define "tiered-sidecar-lib.withEphemeralStorage" -}}
{{- $resources := deepCopy (default dict .resources) -}}
{{- $requests := default dict $resources.requests -}}
{{- $needed := add 512 (int (include "tiered-sidecar-lib.mebibytes" .root.Values.sidecar.tmpSizeLimit)) -}}
{{- if and (not (eq .work false)) (include "tiered-sidecar-lib.workIsOnNode" .root) -}}
{{- $settings := ternary dict (include "tiered-sidecar-lib.settings" .root | fromYaml) (eq .compacts false) -}}
{{- $needed = add $needed (int (include "tiered-sidecar-lib.workMebibytes" $settings)) -}}
{{- end -}}
{{- $limit := get (default dict $resources.limits) "ephemeral-storage" -}}
{{- if and $limit (lt (int (include "tiered-sidecar-lib.mebibytes" $limit)) (int $needed)) -}}
{{- fail (printf "resources.limits.ephemeral-storage is %v, and %d MiB may be needed; beyond the limit the kubelet evicts the pod, the broker with it: leave it out" $limit $needed) -}}
{{- end -}}
{{- if not (hasKey $requests "ephemeral-storage") -}}
{{- $_ := set $requests "ephemeral-storage" (printf "%dMi" $needed) -}}
{{- end -}}
{{- $_ := set $resources "requests" $requests -}}
{{- toYaml $resources -}}
{{- end -}}
