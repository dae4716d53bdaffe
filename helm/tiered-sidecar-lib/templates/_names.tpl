{{/*
Names, labels, image. Every template takes the root context of a chart whose values have the keys of tiered-sidecar's.
*/}}

{{- define "tiered-sidecar-lib.name" -}}
{{- default "tiered-sidecar" .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "tiered-sidecar-lib.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "tiered-sidecar-lib.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tiered-sidecar-lib.selectorLabels" -}}
app.kubernetes.io/name: {{ include "tiered-sidecar-lib.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of an object. The chart's own win over commonLabels, for a selector may ask for them; the component is each object's. */}}
{{- define "tiered-sidecar-lib.labels" -}}
{{- $own := dict
      "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_")
      "app.kubernetes.io/version" (toString .Chart.AppVersion)
      "app.kubernetes.io/part-of" "tiered-sidecar"
      "app.kubernetes.io/managed-by" .Release.Service -}}
{{- $common := omit (default dict .Values.commonLabels) "app.kubernetes.io/component" -}}
{{- toYaml (merge $own (include "tiered-sidecar-lib.selectorLabels" . | fromYaml) $common) -}}
{{- end -}}

{{/* A digest wins over a tag; without either the tag is the program's version. */}}
{{- define "tiered-sidecar-lib.image" -}}
{{- $image := .Values.image -}}
{{- $name := ternary (printf "%s/%s" $image.registry $image.repository) $image.repository (ne $image.registry "") -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default .Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "tiered-sidecar-lib.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "tiered-sidecar-lib.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}
