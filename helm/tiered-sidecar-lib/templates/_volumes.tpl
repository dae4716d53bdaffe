{{/*
The volumes that the containers mount besides the broker's own. Takes a dict with `root`, `settings: false` for heal alone, and
`port: false` where nothing listens, so that no token is needed. Objects that are missing must not keep the broker from starting:
they are optional, and the sidecar says what it lacks.
*/}}
{{- define "tiered-sidecar-lib.volumes" -}}
{{- $values := .root.Values -}}
{{- if not (eq .settings false) -}}
- name: tiered-sidecar-settings
  configMap:
    name: {{ include "tiered-sidecar-lib.fullname" .root }}-settings
    optional: true
{{- if $values.s3.existingSecret }}
- name: tiered-sidecar-keys
  secret:
    secretName: {{ $values.s3.existingSecret }}
    optional: true
    items:
      - key: {{ $values.s3.accessKeyIdKey }}
        path: access-key-id
      - key: {{ $values.s3.secretAccessKeyKey }}
        path: secret-access-key
{{- end }}
- name: tiered-sidecar-work
{{- include "tiered-sidecar-lib.workVolume" .root | nindent 2 }}
{{ end -}}
- name: tiered-sidecar-tmp
  emptyDir:
    sizeLimit: {{ $values.sidecar.tmpSizeLimit }}
{{- if and (not (eq .port false)) ($values.statusPage).existingSecret }}
- name: tiered-sidecar-token
  secret:
    secretName: {{ $values.statusPage.existingSecret }}
    optional: true
    items:
      - key: {{ $values.statusPage.tokenKey }}
        path: token
{{- end }}
{{- with $values.sidecar.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* A strategic merge patch of a pod template: all of the above at once. Same arguments as tiered-sidecar-lib.container. */}}
{{- define "tiered-sidecar-lib.podSpecPatch" -}}
{{- $values := .root.Values -}}
{{- $native := $values.sidecar.native -}}
{{- if or $values.heal.enabled $native }}
initContainers:
{{- if $values.heal.enabled }}
  - {{- include "tiered-sidecar-lib.healContainer" . | nindent 4 | trim | printf " %s" }}
{{- end }}
{{- if $native }}
  - {{- include "tiered-sidecar-lib.container" (merge (dict "native" true) .) | nindent 4 | trim | printf " %s" }}
{{- end }}
{{- end }}
{{- if not $native }}
containers:
  - {{- include "tiered-sidecar-lib.container" . | nindent 4 | trim | printf " %s" }}
{{- end }}
volumes:
{{- include "tiered-sidecar-lib.volumes" (dict "root" .root) | nindent 2 }}
{{- end -}}

{{/* Whether one of the mounts has a path, "" if not. Takes a dict: path, mounts. */}}
{{- define "tiered-sidecar-lib.isMounted" -}}
{{- $path := printf "%s/" (clean .path) -}}
{{- range .mounts -}}
{{- if hasPrefix (printf "%s/" (trimSuffix "/" .mountPath)) $path }}true{{ end -}}
{{- end -}}
{{- end -}}

{{/* Refuses directories that no mount has. Takes a dict: paths, mounts, setting (the name of the paths), of (that of the mounts). */}}
{{- define "tiered-sidecar-lib.requireMounted" -}}
{{- range .paths -}}
{{- if not (include "tiered-sidecar-lib.isMounted" (dict "path" . "mounts" $.mounts)) -}}
{{- fail (printf "%s: %s is not below %s: the container has no volume there" $.setting . $.of) -}}
{{- end -}}
{{- end -}}
{{- end -}}
