{{/*
Injection into Strimzi's broker pods at admission, because its resources have no place for a container. The operator creates pods itself and
leaves existing ones alone (StrimziPodSetController), so what admission adds stays and causes no roll.
*/}}

{{/*
What a pod gets: `initContainers` and `volumes`. Both engines replace the marks. An element of a list that mentions ~MOUNT_PATH~
comes once for each data volume of the pod. Always a native sidecar: with a foreign ordinary container Strimzi resizes no pod in place.
Takes the root context.
*/}}
{{- define "tiered-sidecar-lib.strimzi.injection" -}}
{{- $mounts := list (dict "name" "~MOUNT~" "mountPath" "~MOUNT_PATH~") -}}
{{- $arguments := merge (dict "root" . "native" true "mounts" $mounts) .Values.recipes.hosts.strimzi -}}
initContainers:
{{- if .Values.heal.enabled }}
  - {{- include "tiered-sidecar-lib.healContainer" (merge (dict "logDirs" (list "~MOUNT_PATH~/kafka-log~NODE~")) $arguments) | nindent 4 | trim | printf " %s" }}
{{- end }}
  - {{- include "tiered-sidecar-lib.container" (merge (dict "logDirs" (list "~LOG_DIRS~")) $arguments) | nindent 4 | trim | printf " %s" }}
volumes:
{{- include "tiered-sidecar-lib.volumes" (dict "root" .) | nindent 2 }}
{{- end -}}

{{/*
MutatingAdmissionPolicy and its binding. A JSON patch, since an ApplyConfiguration must not contain atomic lists such as args.
Takes a dict: root, version (v1 or v1beta1), labels (of the objects, or nothing).
*/}}
{{- define "tiered-sidecar-lib.strimzi.policy" -}}
{{- $injection := include "tiered-sidecar-lib.strimzi.injection" .root | fromYaml -}}
{{- $metadata := dict "name" (printf "%s-%s" (include "tiered-sidecar-lib.fullname" .root) .root.Release.Namespace) -}}
{{- with .labels -}}
{{- $metadata = set $metadata "labels" . -}}
{{- end -}}
apiVersion: admissionregistration.k8s.io/{{ .version }}
kind: MutatingAdmissionPolicy
metadata:
{{- toYaml $metadata | nindent 2 }}
spec:
  # A broker without the sidecar is better than no broker. `k8s missing` and an alert find such pods.
  failurePolicy: Ignore
  reinvocationPolicy: Never
  matchConstraints:
{{- include "tiered-sidecar-lib.strimzi.pods" (merge (dict "rules" "resourceRules") .) | nindent 4 }}
  matchConditions:
    - name: not-injected
      expression: >-
        !(object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : [])).exists(c, c.name == "tiered-sidecar")
    - name: has-data
      expression: >-
        object.spec.containers.exists(c, c.name == "kafka" && has(c.volumeMounts) && c.volumeMounts.exists(m,
        m.mountPath.startsWith("/var/lib/kafka/data")))
  variables:
    - name: data
      expression: >-
        object.spec.containers.filter(c, c.name == "kafka")[0].volumeMounts.filter(m, m.mountPath.startsWith("/var/lib/kafka/data"))
    - name: node
      expression: object.metadata.name.substring(object.metadata.name.lastIndexOf("-") + 1)
    - name: logDirs
      expression: variables.data.map(m, m.mountPath + "/kafka-log" + variables.node).join("\",\"")
  mutations:
    - patchType: JSONPatch
      jsonPatch:
        expression: |-
          [JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("tiered-sidecar/scrape"), value: "true"}]
          + (has(object.spec.initContainers) ? [] : [JSONPatch{op: "add", path: "/spec/initContainers", value: []}])
          + [
{{- range $injection.initContainers }}
            {
{{- range $field, $value := . }}
              {{ toJson $field }}: dyn({{ include "tiered-sidecar-lib.cel" $value }}),
{{- end }}
            },
{{- end }}
          ].map(c, JSONPatch{op: "add", path: "/spec/initContainers/-", value: c})
          + (has(object.spec.volumes) ? [] : [JSONPatch{op: "add", path: "/spec/volumes", value: []}])
          + [
{{- range $injection.volumes }}
            {{ include "tiered-sidecar-lib.cel" . }},
{{- end }}
          ].filter(v, !has(object.spec.volumes) || !object.spec.volumes.exists(o, o.name == v.name)).map(v, JSONPatch{op: "add", path: "/spec/volumes/-", value: v})
---
apiVersion: admissionregistration.k8s.io/{{ .version }}
kind: MutatingAdmissionPolicyBinding
metadata:
{{- toYaml $metadata | nindent 2 }}
spec:
  policyName: {{ $metadata.name }}
{{- end -}}

{{/*
The pods: Strimzi's brokers, not its controllers, in the namespace that has the settings. Takes a dict: root, rules (the name of the
field with the resources).
*/}}
{{- define "tiered-sidecar-lib.strimzi.pods" -}}
namespaceSelector:
  matchLabels:
    kubernetes.io/metadata.name: {{ .root.Release.Namespace }}
objectSelector:
  matchLabels:
    strimzi.io/broker-role: "true"
{{- with .root.Values.inject.strimzi.cluster }}
    strimzi.io/cluster: {{ . | quote }}
{{- end }}
{{ .rules }}:
  - apiGroups: [""]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [pods]
{{- end -}}

{{/* A value as CEL. Kubernetes' CEL refuses maps of mixed types unless their values are dyn. */}}
{{- define "tiered-sidecar-lib.cel" -}}
{{- if kindIs "map" . -}}
{{- $entries := list -}}
{{- range $key, $value := . -}}
{{- $entries = append $entries (printf "%s: dyn(%s)" (toJson $key) (include "tiered-sidecar-lib.cel" $value)) -}}
{{- end -}}
{ {{- join ", " $entries -}} }
{{- else if kindIs "slice" . -}}
{{- $parts := list -}}
{{- $run := list -}}
{{- range . -}}
{{- $element := include "tiered-sidecar-lib.cel" . -}}
{{- if contains "~MOUNT_PATH~" (toJson .) -}}
{{- $parts = concat $parts (ternary (list (printf "[%s]" (join ", " $run))) list (gt (len $run) 0)) (list (printf "variables.data.map(m, %s)" $element)) -}}
{{- $run = list -}}
{{- else -}}
{{- $run = append $run $element -}}
{{- end -}}
{{- end -}}
{{- join " + " (append $parts (printf "[%s]" (join ", " $run))) | trimSuffix " + []" -}}
{{- else -}}
{{- $text := toJson . -}}
{{- range $mark, $variable := dict "~MOUNT~" "m.name" "~MOUNT_PATH~" "m.mountPath" "~NODE~" "variables.node" "~LOG_DIRS~" "variables.logDirs" -}}
{{- $text = replace $mark (printf "\" + %s + \"" $variable) $text -}}
{{- end -}}
{{- $text | trimPrefix "\"\" + " | trimSuffix " + \"\"" -}}
{{- end -}}
{{- end -}}
