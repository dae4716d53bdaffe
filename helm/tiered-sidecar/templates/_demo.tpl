{{- define "tiered-sidecar.demoName" -}}
{{ include "tiered-sidecar-lib.fullname" . | trunc 40 | trimSuffix "-" }}-demo
{{- end -}}

{{/* The demo's sidecar is that of the values, but for the store and the broker, which are the demo's own. */}}
{{- define "tiered-sidecar.demoRoot" -}}
{{- $name := include "tiered-sidecar.demoName" . -}}
s3:
  existingSecret: {{ $name }}-s3
  accessKeyIdKey: access-key-id
  secretAccessKeyKey: secret-access-key
settings:
  store:
    url: s3://archive/demo
    s3:
      endpoint_url: http://{{ $name }}-s3:7070
      region: us-east-1
      addressing_style: path
  broker:
    assume_leader: true
    settle_ms: 1000
    snapshot_grace_ms: 1000
  run:
    scan_interval_s: 5
{{- end -}}

{{- define "tiered-sidecar.demoPodSecurity" -}}
runAsNonRoot: true
runAsUser: 1000
runAsGroup: 1000
fsGroup: 1000
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "tiered-sidecar.demoSecurity" -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
{{- end -}}
