{{/*
The text that installs the sidecar next to a host's brokers. Takes a dict: root, host (a key of recipes.hosts).
`tiered-sidecar k8s render` prints the same text: it is rendered from here when the program is built.
*/}}
{{- define "tiered-sidecar-lib.recipe" -}}
{{- $host := index .root.Values.recipes.hosts .host -}}
{{- $mounts := concat (default list $host.mounts) (default list .root.Values.sidecar.extraVolumeMounts) -}}
{{- $setting := printf "recipes.hosts.%s" .host -}}
{{- include "tiered-sidecar-lib.requireMounted" (dict "paths" $host.logDirs "mounts" $mounts "setting" (printf "%s.logDirs" $setting) "of" (printf "a mountPath of %s.mounts" $setting)) -}}
{{- $arguments := merge (dict "root" .root) $host -}}
{{- include (printf "tiered-sidecar-lib.recipe.%s" .host) $arguments -}}
{{- end -}}

{{/* Entries of initContainers; the sidecar is one of them if it is native. */}}
{{- define "tiered-sidecar-lib.initList" -}}
{{- if .root.Values.heal.enabled }}
- {{- include "tiered-sidecar-lib.healContainer" . | nindent 2 | trim | printf " %s" }}
{{- end }}
{{- if .root.Values.sidecar.native }}
- {{- include "tiered-sidecar-lib.container" (merge (dict "native" true) .) | nindent 2 | trim | printf " %s" }}
{{- end }}
{{- end -}}

{{- define "tiered-sidecar-lib.recipe.bitnami" -}}
# Values of the Bitnami chart "kafka", for brokers that are controllers too (its default).
# With controller.controllerOnly put the same under `broker:`.
controller:
  podLabels:
    tiered-sidecar/scrape: "true"
{{- with include "tiered-sidecar-lib.initList" . | trim }}
  initContainers:
{{- . | nindent 4 }}
{{- end }}
{{- if not .root.Values.sidecar.native }}
  sidecars:
    - {{- include "tiered-sidecar-lib.container" . | nindent 6 | trim | printf " %s" }}
{{- end }}
  extraVolumes:
{{- include "tiered-sidecar-lib.volumes" (dict "root" .root) | nindent 4 }}
# The chart's own policy (networkPolicy.enabled, its default) opens only the ports of Kafka: this one is for Prometheus and the status
# page. Add `from` to say who may reach it.
networkPolicy:
  extraIngress:
    - ports:
        - port: {{ include "tiered-sidecar-lib.httpPort" .root }}
# Keyless access to the store (IRSA, workload identity) belongs to the broker's own account:
# serviceAccount:
#   annotations: {eks.amazonaws.com/role-arn: "arn:aws:iam::<account>:role/<role>"}
#   automountServiceAccountToken: false
{{- end -}}

{{- define "tiered-sidecar-lib.recipe.koperator" -}}
# Part of the KafkaCluster resource. The name of the volume is kafka-data-<n>, by the order of its claims' names; the log directory
# is that volume's mountPath with /kafka behind it. The operator's image runs as root unless podSecurityContext says otherwise: set
# it to the user below before there is data, or change the owner of what is there; else snapshots cannot be healed.
{{- if .root.Values.sidecar.native }}
# `kubectl explain kafkacluster.spec.brokers.brokerConfig.initContainers.restartPolicy` must know that field: an operator whose
# definitions are older drops it, and the broker would wait for ever for an init container to end.
{{- else }}
# An ordinary container that ends, for whatever reason, makes this operator replace the broker's pod: prefer sidecar.native.
{{- end }}
spec:
  brokerConfigGroups:
    default:
      brokerLabels:
        tiered-sidecar/scrape: "true"
{{- with include "tiered-sidecar-lib.initList" . | trim }}
      initContainers:
{{- . | nindent 8 }}
{{- end }}
{{- if not .root.Values.sidecar.native }}
      containers:
        - {{- include "tiered-sidecar-lib.container" . | nindent 10 | trim | printf " %s" }}
{{- end }}
      volumes:
{{- include "tiered-sidecar-lib.volumes" (dict "root" .root) | nindent 8 }}
{{- end -}}

{{- define "tiered-sidecar-lib.recipe.cfk" -}}
# For Confluent for Kubernetes, whose operator runs with --podoverlay-enabled. Apply this ConfigMap in the namespace of the
# brokers, then annotate the Kafka resource:
#   platform.confluent.io/pod-overlay-configmap-name: {{ include "tiered-sidecar-lib.fullname" .root }}-overlay
# `kubectl get statefulset kafka -o yaml` tells the names of the data volumes. The text below `pod-template.yaml` begins with `spec`
# of the StatefulSet; the operator merges it before its own init containers.
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "tiered-sidecar-lib.fullname" .root }}-overlay
data:
  pod-template.yaml: |
    spec:
      template:
        metadata:
          labels:
            tiered-sidecar/scrape: "true"
        spec:
{{- include "tiered-sidecar-lib.podSpecPatch" . | trim | nindent 10 }}
{{- end -}}

{{- define "tiered-sidecar-lib.recipe.plain" -}}
# A strategic merge patch of a StatefulSet `kafka`, for kustomize or
#   kubectl patch statefulset kafka --patch-file=this-file.yaml
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: kafka
spec:
  template:
    metadata:
      labels:
        tiered-sidecar/scrape: "true"
    spec:
{{- include "tiered-sidecar-lib.podSpecPatch" . | trim | nindent 6 }}
{{- end -}}

{{- define "tiered-sidecar-lib.recipe.strimzi" -}}
# A policy that adds the sidecar to Strimzi's broker pods when they are created, for Kubernetes 1.36 and newer; 1.34 and 1.35 have
# version v1beta1, behind a feature gate. Strimzi changes no existing pod: roll the brokers, then search for pods without the sidecar:
#   kubectl annotate strimzipodset CLUSTER-POOL strimzi.io/manual-rolling-update=true
#   kubectl get pods -l strimzi.io/broker-role=true -o json | tiered-sidecar k8s missing
{{ include "tiered-sidecar-lib.strimzi.policy" (dict "root" .root "version" "v1") }}
{{- end -}}
