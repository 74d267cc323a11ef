{{- /*
CEL that several policies share. Names here are those of internal/podshare; a test
compares both.
*/ -}}

{{- /* Every resource name that can mean a share, as a CEL list. */ -}}
{{- define "qgpu.cel.allNames" -}}
['elasticgpu.io/gpu-core', 'elasticgpu.io/gpu-memory', 'nano-gpu/gpu-percent', {{ include "qgpu.cel.tkeNames" . }}]
{{- end }}

{{- /* Those that do in this cluster. */ -}}
{{- define "qgpu.cel.names" -}}
{{ if .Values.resourceNames.nano }}{{ include "qgpu.cel.allNames" . }}{{ else }}[{{ include "qgpu.cel.tkeNames" . }}]{{ end }}
{{- end }}

{{- define "qgpu.cel.tkeNames" -}}
'tke.cloud.tencent.com/qgpu-core', 'tke.cloud.tencent.com/qgpu-memory', 'tke.cloud.tencent.com/qgpu-core-greedy'
{{- end }}

{{- /* Whether the pod whose spec is the argument's "spec" asks for a share. */ -}}
{{- define "qgpu.cel.asks" -}}
({{ .spec }}.containers + {{ .spec }}.?initContainers.orValue([])).exists(c,
  {{ include "qgpu.cel.names" .root }}.exists(n,
    n in c.?resources.?limits.orValue({}) || n in c.?resources.?requests.orValue({})))
{{- end }}

{{- /* The pod template within what the API server was given, whatever its kind. */ -}}
{{- define "qgpu.cel.template" -}}
(has(dyn(object).spec.jobTemplate) ? dyn(object).spec.jobTemplate.spec.template : dyn(object).spec.template)
{{- end }}
