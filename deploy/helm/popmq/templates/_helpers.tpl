{{- define "popmq.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "popmq.fullname" -}}
{{- $name := include "popmq.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "popmq.selector" -}}
app.kubernetes.io/name: {{ include "popmq.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "popmq.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "popmq.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "popmq.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default (printf "v%s" .Chart.AppVersion) }}
{{- end }}

{{- /* A size such as 20Gi or 512MiB in mebibytes; a fraction is cut off. */}}
{{- define "popmq.mebibytes" -}}
{{- $number := regexFind "^[0-9]+" . | int64 }}
{{- $unit := regexFind "[MGT]" . }}
{{- if eq $unit "T" }}{{ mul $number 1048576 }}{{ else if eq $unit "G" }}{{ mul $number 1024 }}{{ else }}{{ $number }}{{ end }}
{{- end }}

{{- /* The limit of the store: what the operator says, if the volume has room for it, else nine tenths of the volume. */}}
{{- define "popmq.maxSize" -}}
{{- $volume := include "popmq.mebibytes" .Values.persistence.size | int64 }}
{{- $wanted := index .Values.settings "max_size" | default "" }}
{{- if $wanted }}
{{- if ge (include "popmq.mebibytes" $wanted | int64) $volume }}
{{- fail (printf "settings.max_size %s has to be less than persistence.size %s: a full store keeps serving acks, a full disk does not" $wanted .Values.persistence.size) }}
{{- end }}
{{- $wanted }}
{{- else }}
{{- div (mul $volume 9) 10 }}MiB
{{- end }}
{{- end }}

{{- /* popmq.toml. Texts of JSON are texts of TOML. */}}
{{- define "popmq.toml" -}}
engine = {{ toJson .Values.engine }}
host = {{ toJson .Values.listen }}
metrics_host = {{ toJson .Values.listen }}
{{- if eq .Values.engine "embedded" }}
data = "/data"
max_size = {{ include "popmq.maxSize" . | toJson }}
{{- else }}
{{- if not .Values.gateway.namesrv }}
{{- fail "gateway.namesrv is empty: name host:port of each name server of the RocketMQ cluster" }}
{{- end }}
namesrv = {{ toJson .Values.gateway.namesrv }}
{{- if .Values.gateway.handleSecretName }}
handle_secret = "/etc/popmq-handles/handle-secret"
{{- else if or (gt (int .Values.gateway.replicas) 1) .Values.accessKeys.secretName (gt (int (index .Values.settings "workers" | default 1)) 1) }}
{{- fail "gateway.handleSecretName is empty: gateways, and workers of one, take each other's handles only if they share a secret" }}
{{- end }}
{{- if .Values.gateway.brokerKeySecretName }}
broker_key = "/etc/popmq-broker-key/broker-key.toml"
{{- end }}
{{- if ne .Values.gateway.brokerTls.mode "off" }}
broker_tls = {{ toJson .Values.gateway.brokerTls.mode }}
{{- if and (eq .Values.gateway.brokerTls.mode "verify") .Values.gateway.brokerTls.secretName }}
broker_ca = "/etc/popmq-broker-tls/ca.crt"
{{- end }}
{{- if .Values.gateway.brokerTls.certificate }}
broker_cert = "/etc/popmq-broker-tls/tls.crt"
broker_cert_key = "/etc/popmq-broker-tls/tls.key"
{{- end }}
{{- end }}
{{- end }}
{{- if .Values.accessKeys.secretName }}
access_keys = "/etc/popmq-access-keys/keys.toml"
{{- end }}
{{- if .Values.tls.secretName }}
tls_cert = "/etc/popmq-tls/tls.crt"
tls_key = "/etc/popmq-tls/tls.key"
tls_only = {{ .Values.tls.only }}
{{- if .Values.tls.clientCa.secretName }}
tls_client_ca = "/etc/popmq-client-ca/ca.crt"
tls_client_required = {{ .Values.tls.clientCa.required }}
{{- end }}
{{- end }}
{{- range $name, $value := omit .Values.settings "max_size" }}
{{ $name }} = {{ if kindIs "float64" $value }}{{ int64 $value }}{{ else }}{{ toJson $value }}{{ end }}
{{- end }}
{{- end }}

{{- /* The Secrets that are mounted: lines "volume secret". */}}
{{- define "popmq.secrets" -}}
{{- if .Values.accessKeys.secretName }}
access-keys {{ .Values.accessKeys.secretName }}
{{- end }}
{{- if .Values.tls.secretName }}
tls {{ .Values.tls.secretName }}
{{- if .Values.tls.clientCa.secretName }}
client-ca {{ .Values.tls.clientCa.secretName }}
{{- end }}
{{- end }}
{{- if eq .Values.engine "rocketmq" }}
{{- if .Values.gateway.handleSecretName }}
handles {{ .Values.gateway.handleSecretName }}
{{- end }}
{{- if .Values.gateway.brokerKeySecretName }}
broker-key {{ .Values.gateway.brokerKeySecretName }}
{{- end }}
{{- if and (ne .Values.gateway.brokerTls.mode "off") .Values.gateway.brokerTls.secretName }}
broker-tls {{ .Values.gateway.brokerTls.secretName }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The pod, which a StatefulSet or a Deployment has. */}}
{{- define "popmq.pod" -}}
{{- $gateway := eq .Values.engine "rocketmq" -}}
metadata:
  labels:
    {{- include "popmq.selector" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    # Changed settings restart the pod; Secrets are read again without.
    checksum/config: {{ include "popmq.toml" . | sha256sum }}
    {{- if .Values.metrics.annotations }}
    prometheus.io/scrape: "true"
    prometheus.io/port: "9464"
    {{- end }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  # Longer than the 5 s in which running calls end.
  terminationGracePeriodSeconds: 30
  enableServiceLinks: false
  automountServiceAccountToken: false
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    {{- if not $gateway }}
    # A volume of gigabytes is not walked at each start.
    fsGroupChangePolicy: OnRootMismatch
    {{- end }}
    seccompProfile: {type: RuntimeDefault}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if $gateway }}
  # Not all on one node.
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "popmq.selector" . | nindent 10 }}
  {{- end }}
  containers:
    - name: popmq
      image: {{ include "popmq.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [popmq, serve, --config, /etc/popmq/popmq.toml]
      # What the image names would take precedence over popmq.toml.
      env:
        - {name: POPMQ_HOST, value: ""}
        - {name: POPMQ_METRICS_HOST, value: ""}
        - {name: POPMQ_DATA, value: ""}
      ports:
        - {name: grpc, containerPort: 8081}
        - {name: grpc-tls, containerPort: 8082}
        - {name: http, containerPort: 8083}
        - {name: metrics, containerPort: 9464}
      # A start that reads the store is healthy, however long it takes, and so is a gateway that waits for its cluster: a
      # restart would help neither.
      livenessProbe:
        httpGet: {path: /healthz, port: metrics}
        initialDelaySeconds: 10
        periodSeconds: 10
        timeoutSeconds: 10
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /readyz, port: metrics}
        periodSeconds: 5
        timeoutSeconds: 10
      {{- if $gateway }}
      lifecycle:
        # Until the Service knows that it stops, new connections still come.
        preStop: {exec: {command: [sleep, "5"]}}
      {{- end }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      resources:
        {{- if .Values.resources }}
        {{- toYaml .Values.resources | nindent 8 }}
        {{- else if $gateway }}
        requests: {cpu: "2", memory: 512Mi}
        limits: {memory: 2Gi}
        {{- else }}
        requests: {cpu: "1", memory: 1Gi}
        limits: {memory: 4Gi}
        {{- end }}
      volumeMounts:
        {{- if not $gateway }}
        - {name: data, mountPath: /data}
        {{- end }}
        - {name: config, mountPath: /etc/popmq, readOnly: true}
        {{- range $line := include "popmq.secrets" . | trim | splitList "\n" | compact }}
        {{- $parts := splitList " " $line }}
        - {name: {{ index $parts 0 }}, mountPath: /etc/popmq-{{ index $parts 0 }}, readOnly: true}
        {{- end }}
        - {name: tmp, mountPath: /tmp}
  volumes:
    - {name: config, configMap: {name: {{ include "popmq.fullname" . }}}}
    {{- range $line := include "popmq.secrets" . | trim | splitList "\n" | compact }}
    {{- $parts := splitList " " $line }}
    - {name: {{ index $parts 0 }}, secret: {secretName: {{ index $parts 1 }}, defaultMode: 0400}}
    {{- end }}
    - {name: tmp, emptyDir: {}}
{{- end }}
