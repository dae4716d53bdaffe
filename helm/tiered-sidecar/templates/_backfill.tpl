{{/* The Job of one broker's volume. Takes a dict: root, broker. */}}
{{- define "tiered-sidecar.backfillJob" -}}
{{- $backfill := .root.Values.backfill -}}
backoffLimit: {{ $backfill.backoffLimit }}
activeDeadlineSeconds: {{ $backfill.activeDeadlineSeconds }}
ttlSecondsAfterFinished: {{ $backfill.ttlSecondsAfterFinished }}
template:
  metadata:
    labels:
      app.kubernetes.io/component: backfill
{{- $labels := omit (default dict $backfill.podLabels) "app.kubernetes.io/component" }}
{{- toYaml (merge (include "tiered-sidecar-lib.selectorLabels" .root | fromYaml) $labels) | nindent 6 }}
{{- with $backfill.podAnnotations }}
    annotations:
{{- toYaml . | nindent 6 }}
{{- end }}
  spec:
    restartPolicy: Never
    serviceAccountName: {{ include "tiered-sidecar-lib.serviceAccountName" .root }}
    automountServiceAccountToken: false
{{- with .root.Values.imagePullSecrets }}
    imagePullSecrets:
{{- toYaml . | nindent 6 }}
{{- end }}
{{- with $backfill.nodeSelector }}
    nodeSelector:
{{- toYaml . | nindent 6 }}
{{- end }}
{{- with $backfill.tolerations }}
    tolerations:
{{- toYaml . | nindent 6 }}
{{- end }}
{{- with $backfill.affinity }}
    affinity:
{{- toYaml . | nindent 6 }}
{{- end }}
{{- with $backfill.priorityClassName }}
    priorityClassName: {{ . }}
{{- end }}
    securityContext:
      fsGroup: {{ $backfill.runAsGroup }}
      fsGroupChangePolicy: OnRootMismatch
{{- $arguments := dict "root" .root "logDirs" .broker.logDirs "runAsUser" $backfill.runAsUser "runAsGroup" $backfill.runAsGroup }}
    containers:
      - name: backfill
        image: {{ include "tiered-sidecar-lib.image" .root }}
        imagePullPolicy: {{ .root.Values.image.pullPolicy }}
        args:
          - backfill
          - --json
{{- range $backfill.arguments }}
          - {{ . | quote }}
{{- end }}
        env:
{{- include "tiered-sidecar-lib.env" $arguments | nindent 10 }}
        resources:
{{- include "tiered-sidecar-lib.withEphemeralStorage" (dict "root" .root "resources" $backfill.resources "compacts" false) | nindent 10 }}
        securityContext:
{{- include "tiered-sidecar-lib.securityContext" $arguments | nindent 10 }}
        volumeMounts:
          - name: data
            mountPath: /data
            readOnly: true
{{- include "tiered-sidecar-lib.ownMounts" $arguments | nindent 10 }}
    volumes:
      - name: data
        persistentVolumeClaim:
          claimName: {{ .broker.claim }}
{{- include "tiered-sidecar-lib.volumes" (dict "root" .root "port" false) | nindent 6 }}
{{- end -}}
