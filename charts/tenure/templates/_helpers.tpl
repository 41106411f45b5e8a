{{- define "tenure.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "tenure.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- $name := include "tenure.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "tenure.headlessName" -}}
{{- printf "%s-headless" (include "tenure.fullname" . | trunc 54 | trimSuffix "-") }}
{{- end }}

{{- /* All labels of a resource: (list root component [further labels]). The chart's own win over what values add. */}}
{{- define "tenure.labels" -}}
{{- $root := index . 0 }}
{{- $own := dict
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
  "app.kubernetes.io/name" (include "tenure.name" $root)
  "app.kubernetes.io/instance" $root.Release.Name
  "app.kubernetes.io/version" ($root.Values.image.tag | default $root.Chart.AppVersion | trunc 63 | trimSuffix "-")
  "app.kubernetes.io/managed-by" $root.Release.Service
  "app.kubernetes.io/component" (index . 1) }}
{{- $further := dict }}
{{- if gt (len .) 2 }}
{{- $further = index . 2 }}
{{- end }}
{{- merge $own $further $root.Values.commonLabels | toYaml }}
{{- end }}

{{- /* What selects the daemons. The component keeps the migration Job's pods out of every selector. */}}
{{- define "tenure.selectorLabels" -}}
app.kubernetes.io/name: {{ include "tenure.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: server
{{- end }}

{{- define "tenure.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "tenure.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "tenure.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}
{{- end }}

{{- define "tenure.databaseSecret" -}}
{{- $hint := printf "database.existingSecret is required: the name of an existing Secret that holds the PostgreSQL URL. Create it with: kubectl create secret generic tenure-database --namespace %s --from-literal=%s='postgres://USER:PASSWORD@HOST:5432/DATABASE' and pass --set database.existingSecret=tenure-database" .Release.Namespace .Values.database.existingSecretKey }}
{{- required $hint .Values.database.existingSecret }}
{{- end }}

{{- define "tenure.terminationGracePeriodSeconds" -}}
{{- $least := add .Values.preStopSleepSeconds .Values.server.shutdownGraceSeconds }}
{{- if kindIs "invalid" .Values.terminationGracePeriodSeconds }}
{{- add $least 10 }}
{{- else }}
{{- if le (int64 .Values.terminationGracePeriodSeconds) $least }}
{{- fail (printf "terminationGracePeriodSeconds (%d) must be larger than preStopSleepSeconds + server.shutdownGraceSeconds (%d), or Kubernetes kills the daemon while it drains" (int64 .Values.terminationGracePeriodSeconds) $least) }}
{{- end }}
{{- .Values.terminationGracePeriodSeconds }}
{{- end }}
{{- end }}

{{- /* The environment that the chart owns. A name that extraEnv sets again would make the last one win, silently. */}}
{{- define "tenure.env" -}}
- name: TENURE_DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ include "tenure.databaseSecret" . }}
      key: {{ .Values.database.existingSecretKey }}
- name: TENURE_DATABASE_CONNECTIONS
  value: {{ .Values.database.connections | quote }}
- name: TENURE_GRPC_LISTEN
  value: {{ printf "%s:8470" .Values.server.listenAddress | quote }}
- name: TENURE_HTTP_LISTEN
  value: {{ printf "%s:8471" .Values.server.listenAddress | quote }}
{{- if .Values.server.allowUnauthenticated }}
- name: TENURE_ALLOW_UNAUTHENTICATED
  value: "true"
{{- end }}
- name: TENURE_BACKGROUND
  value: {{ .Values.server.background | quote }}
- name: TENURE_SHUTDOWN_GRACE
  value: {{ printf "%ds" (int64 .Values.server.shutdownGraceSeconds) | quote }}
- name: TENURE_LOG_FORMAT
  value: {{ .Values.server.logFormat | quote }}
- name: TENURE_LOG_LEVEL
  value: {{ .Values.server.logLevel | quote }}
{{- end }}

{{- define "tenure.checkExtraEnv" -}}
{{- $own := dict }}
{{- range (include "tenure.env" . | fromYamlArray) }}
{{- $_ := set $own .name true }}
{{- end }}
{{- range .Values.extraEnv }}
{{- if hasKey $own .name }}
{{- fail (printf "extraEnv sets %s, which the chart sets itself: use the values under server and database" .name) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "tenure.topologySpreadConstraints" -}}
{{- $selector := dict "labelSelector" (dict "matchLabels" (include "tenure.selectorLabels" . | fromYaml)) }}
{{- $constraints := list }}
{{- range .Values.topologySpreadConstraints }}
{{- $constraints = append $constraints (hasKey . "labelSelector" | ternary . (merge (deepCopy .) $selector)) }}
{{- end }}
{{- toYaml $constraints }}
{{- end }}
