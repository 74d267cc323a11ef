{{- define "qgpu.selector" -}}
app.kubernetes.io/name: qgpu
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "qgpu.labels" -}}
{{ include "qgpu.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end }}

{{- define "qgpu.image" -}}
{{ printf "%s/%s:%s" .root.Values.images.registry .name (.root.Values.images.tag | default .root.Chart.AppVersion) }}
{{- end }}

{{- define "qgpu.pullSecrets" -}}
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{- /* The user names of the two programs, as the API server knows them. */ -}}
{{- define "qgpu.schedulerUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:qgpu-scheduler
{{- end }}
{{- define "qgpu.agentUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:qgpu-agent
{{- end }}

{{- /* A container that needs nothing of the system. */ -}}
{{- define "qgpu.unprivileged" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}
