{{- define "magnetar.name" -}}
{{- printf "%s-magnetar" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "magnetar.labels" -}}
app.kubernetes.io/name: magnetar
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "magnetar.selector" -}}
app.kubernetes.io/name: magnetar
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "magnetar.image" -}}
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end -}}

{{- define "magnetar.pod" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 10000
  fsGroup: 10000
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "magnetar.container" -}}
image: {{ include "magnetar.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
{{- end -}}

{{- define "magnetar.spread" -}}
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- include "magnetar.selector" .root | nindent 6 }}
      app.kubernetes.io/component: {{ .component }}
{{- end -}}
