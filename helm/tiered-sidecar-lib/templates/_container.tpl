{{/*
The containers. Each takes a dict:
  root       the root context
  logDirs    list: the broker's log.dirs as the container sees them
  mounts     list of {name, mountPath}: the broker's data volumes
  runAsUser, runAsGroup  numbers: the broker's, so that files of mode 0600 can be read; left out where OpenShift assigns them
*/}}

{{/*
The sidecar. `native: true` makes it an entry of initContainers that runs as long as the pod (Kubernetes 1.29+).
A container that ends, or whose readiness probe fails, makes the broker's pod unready; a startup probe of a native sidecar keeps
the broker from starting. So it has neither probe, and `--retry-start` keeps it up whatever a start lacks. The address stands in
a variable, because the settings file may be what is missing.
*/}}
{{- define "tiered-sidecar-lib.container" -}}
{{- $values := .root.Values -}}
name: tiered-sidecar
image: {{ include "tiered-sidecar-lib.image" .root }}
imagePullPolicy: {{ $values.image.pullPolicy }}
{{- if .native }}
restartPolicy: Always
{{- end }}
args: [run, --retry-start]
env:
{{- include "tiered-sidecar-lib.env" . | nindent 2 }}
  - name: TIERED_SIDECAR__HTTP__BIND
    value: {{ include "tiered-sidecar-lib.httpBind" .root | quote }}
{{- if ($values.statusPage).existingSecret }}
  - name: TIERED_SIDECAR__HTTP__TOKEN_FILE
    value: /etc/tiered-sidecar-token/token
{{- end }}
ports:
  - name: sidecar-http
    containerPort: {{ include "tiered-sidecar-lib.httpPort" .root }}
livenessProbe:
  httpGet:
    path: /healthz
    port: sidecar-http
  initialDelaySeconds: 30
  periodSeconds: 30
  timeoutSeconds: 5
  failureThreshold: 4
resources:
{{- include "tiered-sidecar-lib.resources" .root | nindent 2 }}
securityContext:
{{- include "tiered-sidecar-lib.securityContext" . | nindent 2 }}
volumeMounts:
{{- range .mounts }}
  - name: {{ .name }}
    mountPath: {{ .mountPath }}
    readOnly: true
{{- end }}
{{- if ($values.statusPage).existingSecret }}
  - name: tiered-sidecar-token
    mountPath: /etc/tiered-sidecar-token
    readOnly: true
{{- end }}
{{- include "tiered-sidecar-lib.ownMounts" . | nindent 2 }}
{{- end -}}

{{/*
Creates missing producer snapshots before the broker starts. It must never keep the broker from starting, so it ends with 0
whatever happened: after an unclean stop `heal` refuses, and only the broker itself can repair that. A kill for its memory takes the
shell along, and the kubelet starts the container again: the file tells that start to do nothing.
*/}}
{{- define "tiered-sidecar-lib.healContainer" -}}
{{- $values := .root.Values -}}
name: heal-producer-snapshots
image: {{ include "tiered-sidecar-lib.image" .root }}
imagePullPolicy: {{ $values.image.pullPolicy }}
command: [/bin/sh, -c]
args:
  - |
    if [ -e /tmp/healing ]; then
      echo "the last heal was killed, the broker starts without it" >&2
      exit 0
    fi
    : > /tmp/healing
    tiered-sidecar --json --quiet snapshots heal "$@" ||
      echo "not all healed (exit code $?), the broker starts all the same" >&2
    rm -f /tmp/healing
  - heal
{{- range $values.heal.arguments }}
  - {{ . | quote }}
{{- end }}
{{- range .logDirs }}
  - {{ . | quote }}
{{- end }}
env:
  - name: NUMBA_CACHE_DIR
    value: /tmp/kernels
resources:
{{- include "tiered-sidecar-lib.withEphemeralStorage" (dict "root" .root "resources" $values.heal.resources "work" false) | nindent 2 }}
securityContext:
{{- include "tiered-sidecar-lib.securityContext" . | nindent 2 }}
volumeMounts:
{{- range .mounts }}
  - name: {{ .name }}
    mountPath: {{ .mountPath }}
{{- end }}
  - name: tiered-sidecar-tmp
    mountPath: /tmp
{{- end -}}

{{- define "tiered-sidecar-lib.securityContext" -}}
{{- range $field := list "runAsUser" "runAsGroup" -}}
{{- if hasKey $ $field -}}
{{ $field }}: {{ get $ $field }}
{{ end -}}
{{- end -}}
runAsNonRoot: true
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/*
Where the settings come from. Variables win over the file, so one file serves hosts with different directories. Keys of the store
come as files: a variable keeps the content that the Secret had when the container began, and this container does not end for a new one.
*/}}
{{- define "tiered-sidecar-lib.env" -}}
{{- $values := .root.Values -}}
- name: TIERED_SIDECAR_CONFIG
  value: /etc/tiered-sidecar/settings.yaml
{{- with .logDirs }}
- name: TIERED_SIDECAR__BROKER__LOG_DIRS
  value: {{ toJson . | squote }}
{{- end }}
- name: NUMBA_CACHE_DIR
  value: /var/lib/tiered-sidecar/kernels
{{- if $values.s3.existingSecret }}
- name: TIERED_SIDECAR__STORE__S3__ACCESS_KEY_ID_FILE
  value: /etc/tiered-sidecar-keys/access-key-id
- name: TIERED_SIDECAR__STORE__S3__SECRET_ACCESS_KEY_FILE
  value: /etc/tiered-sidecar-keys/secret-access-key
{{- end }}
{{- with $values.sidecar.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "tiered-sidecar-lib.ownMounts" -}}
- name: tiered-sidecar-settings
  mountPath: /etc/tiered-sidecar
  readOnly: true
{{- if .root.Values.s3.existingSecret }}
- name: tiered-sidecar-keys
  mountPath: /etc/tiered-sidecar-keys
  readOnly: true
{{- end }}
- name: tiered-sidecar-work
  mountPath: /var/lib/tiered-sidecar
- name: tiered-sidecar-tmp
  mountPath: /tmp
{{- with .root.Values.sidecar.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}
