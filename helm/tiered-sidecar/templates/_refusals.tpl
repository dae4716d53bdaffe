{{/*
What the schema of the values cannot say, refused when Helm renders instead of when the sidecar starts. Takes the root context.
*/}}
{{- define "tiered-sidecar.requireSettings" -}}
{{- include "tiered-sidecar.requireArchive" . -}}
{{- include "tiered-sidecar.requireLeadership" . -}}
{{- include "tiered-sidecar.requireOtherVariables" . -}}
{{- include "tiered-sidecar.requireWritable" . -}}
{{- $topics := default dict .Values.settings.topics -}}
{{- $compaction := default dict .Values.settings.compaction -}}
{{- $lists := dict "topics.include" $topics.include "topics.exclude" $topics.exclude "topics.policies" $topics.policies "compaction.topics" $compaction.topics -}}
{{- range $path, $entries := $lists -}}
{{- range $entry := $entries -}}
{{- $pattern := $entry -}}
{{- if kindIs "map" $entry -}}
{{- $pattern = $entry.pattern -}}
{{- end -}}
{{- include "tiered-sidecar.requirePattern" (dict "path" $path "pattern" $pattern) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
As sidecar/store_settings.py has it; and a directory must be that of a volume, since no other outlives the container. What may be a secret
is not repeated.
*/}}
{{- define "tiered-sidecar.requireArchive" -}}
{{- $url := default "" .Values.settings.store.url -}}
{{- if not $url -}}
{{- fail "settings.store.url is required: where the archive is, such as s3://bucket/prefix" -}}
{{- end -}}
{{- if regexMatch "^[^/]*:(//)?[^/]*@" $url -}}
{{- fail "settings.store.url must not carry credentials: give keys by a Secret, s3.existingSecret" -}}
{{- end -}}
{{- if and (hasPrefix "s3://" $url) (not (regexMatch "^s3://([A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]|arn:[A-Za-z0-9:_.-]+)(/|$)" $url)) -}}
{{- fail (printf "settings.store.url is %s: a bucket has 3 to 63 letters, digits, dots and hyphens" $url) -}}
{{- end -}}
{{- $directory := regexReplaceAll "^(file|local)://" $url "" -}}
{{- if not (or (contains "://" $directory) (include "tiered-sidecar-lib.isMounted" (dict "path" $directory "mounts" .Values.sidecar.extraVolumeMounts))) -}}
{{- fail (printf "settings.store.url is %s, a directory that no entry of sidecar.extraVolumeMounts has: an archive there could not be written, or would end with the pod. Mount a volume, or write s3://bucket/prefix" $url) -}}
{{- end -}}
{{- end -}}

{{/* The root file system is read-only. */}}
{{- define "tiered-sidecar.requireWritable" -}}
{{- $settings := include "tiered-sidecar-lib.settings" . | fromYaml -}}
{{- $mounts := concat (default list .Values.sidecar.extraVolumeMounts) (list (dict "mountPath" "/var/lib/tiered-sidecar") (dict "mountPath" "/tmp")) -}}
{{- range $section, $name := dict "run" "state_dir" "compaction" "staging_dir" "spark" "local_dir" -}}
{{- $paths := compact (list (get (get $settings $section) $name)) -}}
{{- include "tiered-sidecar-lib.requireMounted" (dict "paths" $paths "mounts" $mounts "setting" (printf "settings.%s.%s" $section $name) "of" "/var/lib/tiered-sidecar, /tmp or a mountPath of sidecar.extraVolumeMounts") -}}
{{- end -}}
{{- end -}}

{{/* Nothing is archived unless something says which partitions the broker leads. Variables of the container may say it as well. */}}
{{- define "tiered-sidecar.requireLeadership" -}}
{{- $broker := default dict .Values.settings.broker -}}
{{- if hasKey $broker "log_dirs" -}}
{{- fail "the containers do not read settings.broker.log_dirs: set recipes.hosts.<host>.logDirs and backfill.brokers[].logDirs" -}}
{{- end -}}
{{- $asked := (default dict $broker.connection).bootstrap_servers -}}
{{- if and $asked $broker.assume_leader -}}
{{- fail "settings.broker.assume_leader and connection.bootstrap_servers cannot both be set: remove one of them" -}}
{{- end -}}
{{- $said := or $asked $broker.assume_leader -}}
{{- range .Values.sidecar.extraEnv -}}
{{- $said = or $said (has .name (list "TIERED_SIDECAR__BROKER__ASSUME_LEADER" "TIERED_SIDECAR__BROKER__CONNECTION__BOOTSTRAP_SERVERS")) -}}
{{- end -}}
{{- if not $said -}}
{{- fail "nothing says which partitions the broker leads, so nothing would be archived: set settings.broker.connection.bootstrap_servers, the broker next to the sidecar first (such as {localhost:9092,kafka:9092}); or settings.broker.assume_leader=true where each partition has one replica, or for the back-fill of a copy" -}}
{{- end -}}
{{- end -}}

{{/* Server-side apply (Helm 4, Argo CD) refuses a container with a variable twice; else the order decides which one holds. */}}
{{- define "tiered-sidecar.requireOtherVariables" -}}
{{- $seen := list "TIERED_SIDECAR_CONFIG" "TIERED_SIDECAR__BROKER__LOG_DIRS" "TIERED_SIDECAR__HTTP__BIND" "NUMBA_CACHE_DIR" -}}
{{- if .Values.s3.existingSecret -}}
{{- $seen = concat $seen (list "TIERED_SIDECAR__STORE__S3__ACCESS_KEY_ID_FILE" "TIERED_SIDECAR__STORE__S3__SECRET_ACCESS_KEY_FILE") -}}
{{- end -}}
{{- if .Values.statusPage.existingSecret -}}
{{- $seen = append $seen "TIERED_SIDECAR__HTTP__TOKEN_FILE" -}}
{{- end -}}
{{- range .Values.sidecar.extraEnv -}}
{{- if has .name $seen -}}
{{- fail (printf "sidecar.extraEnv: the variable %s is already set, by the chart or by another entry: remove this one" .name) -}}
{{- end -}}
{{- $seen = append $seen .name -}}
{{- end -}}
{{- end -}}

{{/*
Helm and the program do not have the same regular expressions: what only the program's may know is left to it. An alternative
that matches the empty text tells an expression that cannot be read, of which regexMatch is silent. Takes a dict: path, pattern.
*/}}
{{- define "tiered-sidecar.requirePattern" -}}
{{- $pattern := toString .pattern -}}
{{- $own := "\\(\\?[^:P]|\\(\\?P[=>]|\\\\[0-9Z]|[*+?}]\\+" -}}
{{- if and (not (regexMatch $own $pattern)) (not (regexMatch (printf "%s|" $pattern) "")) -}}
{{- fail (printf "settings.%s: %s is not a regular expression" .path $pattern) -}}
{{- end -}}
{{- end -}}
