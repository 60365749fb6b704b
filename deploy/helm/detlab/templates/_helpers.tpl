{{/* Names. A release that is called like the chart is not named twice. */}}
{{- define "detlab.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels of everything; a dict of root and component. */}}
{{- define "detlab.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{ include "detlab.selector" . }}
{{- end -}}

{{- define "detlab.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/*
How Services and policies find the chart's own pods: besides, by a key that no pod of a user has. Agents never pass
labels of users under detlab.io/ on.
*/}}
{{- define "detlab.pods" -}}
{{ include "detlab.selector" . }}
detlab.io/part: {{ .component }}
{{- end -}}

{{/* Labels of the chart's own pods. */}}
{{- define "detlab.podLabels" -}}
{{ include "detlab.labels" . }}
detlab.io/part: {{ .component }}
{{- end -}}

{{/* The image of a name; a dict of root and name. */}}
{{- define "detlab.image" -}}
{{- $first := splitList "/" .name | first -}}
{{- $prefix := "" -}}
{{- if and .root.Values.images.registry (not (and (contains "/" .name) (or (contains "." $first) (contains ":" $first)))) -}}
{{- $prefix = printf "%s/" (trimSuffix "/" .root.Values.images.registry) -}}
{{- end -}}
{{- $last := splitList "/" .name | last -}}
{{- if or (contains ":" $last) (contains "@" .name) -}}
{{- printf "%s%s" $prefix .name -}}
{{- else -}}
{{- printf "%s%s:%s" $prefix .name (.root.Values.images.tag | default .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "detlab.secretName" -}}
{{- .Values.secrets.existingSecret | default (include "detlab.fullname" .) -}}
{{- end -}}

{{- define "detlab.tlsSecretName" -}}
{{- .Values.tls.secretName | default (printf "%s-tls" (include "detlab.fullname" .)) -}}
{{- end -}}

{{/* Whether the chart makes the certificate, which agents and tasks then pin: "yes" or "". */}}
{{- define "detlab.pinned" -}}
{{- if and .Values.tls.enabled (not .Values.tls.secretName) (not .Values.agentOnly) -}}yes{{- end -}}
{{- end -}}

{{/* Tasks have a namespace of their own, unless the values name one. */}}
{{- define "detlab.tasksNamespace" -}}
{{- $name := include "detlab.fullname" . -}}
{{- $own := ternary $name (printf "%s-%s" .Release.Namespace $name) (eq $name .Release.Namespace) -}}
{{- .Values.agent.namespace | default (printf "%s-tasks" ($own | trunc 57 | trimSuffix "-")) -}}
{{- end -}}

{{/* All namespaces of tasks, those of groups and users too; as a JSON list. */}}
{{- define "detlab.taskNamespaces" -}}
{{- $found := list (include "detlab.tasksNamespace" .) -}}
{{- range $kind := list "groups" "users" -}}
{{- range $_, $place := get $.Values.agent.settings $kind | default dict -}}
{{- with dig "namespace" "" $place }}{{ $found = append $found . }}{{ end -}}
{{- end -}}
{{- end -}}
{{- $found | uniq | toJson -}}
{{- end -}}

{{- define "detlab.proxyPort" -}}
{{- if .Values.proxy.service.port -}}{{- .Values.proxy.service.port -}}
{{- else if .Values.tls.enabled -}}443{{- else -}}80{{- end -}}
{{- end -}}

{{/* The proxy inside the cluster. */}}
{{- define "detlab.insideUrl" -}}
{{- $port := include "detlab.proxyPort" . -}}
{{- $scheme := ternary "https" "http" .Values.tls.enabled -}}
{{- $usual := ternary "443" "80" .Values.tls.enabled -}}
{{- printf "%s://%s-proxy.%s.svc%s" $scheme (include "detlab.fullname" .) .Release.Namespace (ternary "" (printf ":%s" $port) (eq $port $usual)) -}}
{{- end -}}

{{- define "detlab.publicUrl" -}}
{{- .Values.publicUrl | trimSuffix "/" | default (include "detlab.insideUrl" .) -}}
{{- end -}}

{{/* How agents, tasks and notebooks reach the cluster: by a way that is encrypted, if there is one. */}}
{{- define "detlab.clusterUrl" -}}
{{- if .Values.agent.masterUrl -}}
{{- .Values.agent.masterUrl | trimSuffix "/" -}}
{{- else if and (not (include "detlab.pinned" .)) (hasPrefix "https://" .Values.publicUrl) -}}
{{- include "detlab.publicUrl" . -}}
{{- else -}}
{{- include "detlab.insideUrl" . -}}
{{- end -}}
{{- end -}}

{{- define "detlab.priorityClass" -}}
{{- if .root.Values.priorityClasses.create -}}
{{- printf "%s-%s-%s" .root.Release.Namespace (include "detlab.fullname" .root) .which -}}
{{- end -}}
{{- end -}}

{{- define "detlab.checkpointsClaim" -}}
{{- if .Values.agentOnly -}}
{{- .Values.checkpoints.existingClaim -}}
{{- else if and (not .Values.checkpoints.storage) (eq (include "detlab.tasksNamespace" .) .Release.Namespace) -}}
{{- .Values.checkpoints.existingClaim | default (printf "%s-checkpoints" (include "detlab.fullname" .)) -}}
{{- end -}}
{{- end -}}

{{/* The agent's settings for pods: the chart's, and over them the site's; its volumes come after ours. */}}
{{- define "detlab.agentSettings" -}}
{{- $name := include "detlab.fullname" . -}}
{{- $ours := dict
    "image" (include "detlab.image" (dict "root" . "name" .Values.images.tasks))
    "image_pull_policy" .Values.images.pullPolicy
    "service_account" (printf "%s-tasks" $name)
    "pod_security" .Values.agent.podSecurity
-}}
{{- with .Values.images.pullSecrets }}{{ $_ := set $ours "image_pull_secrets" . }}{{ end -}}
{{- with include "detlab.priorityClass" (dict "root" . "which" "tasks") }}{{ $_ := set $ours "priority_class" . }}{{ end -}}
{{- $volumes := list -}}
{{- $mounts := list -}}
{{- with include "detlab.checkpointsClaim" . -}}
{{- $volumes = append $volumes (dict "name" "checkpoints" "persistentVolumeClaim" (dict "claimName" .)) -}}
{{- $mounts = append $mounts (dict "name" "checkpoints" "mountPath" "/srv/detlab/checkpoints") -}}
{{- end -}}
{{- with concat $volumes (.Values.agent.settings.volumes | default list) }}{{ $_ := set $ours "volumes" . }}{{ end -}}
{{- with concat $mounts (.Values.agent.settings.volume_mounts | default list) }}{{ $_ := set $ours "volume_mounts" . }}{{ end -}}
{{- toYaml (mergeOverwrite $ours (omit .Values.agent.settings "volumes" "volume_mounts")) -}}
{{- end -}}

{{/* Where pods of the chart may run, and how urgent they are; a dict of root and values. */}}
{{- define "detlab.placement" -}}
{{- with include "detlab.priorityClass" (dict "root" .root "which" "service") }}
priorityClassName: {{ . }}
{{- end }}
{{- with .root.Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Of every pod of the chart; the number is that of the user. */}}
{{- define "detlab.podSecurity" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ . }}
  runAsGroup: {{ . }}
  fsGroup: {{ . }}
  seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "detlab.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{/* config.json of the Hub and the master. No secret is in it. */}}
{{- define "detlab.config" -}}
{{- $name := include "detlab.fullname" . -}}
{{- $claim := include "detlab.checkpointsClaim" . -}}
{{- dict
    "publicUrl" (include "detlab.publicUrl" .)
    "clusterUrl" (include "detlab.clusterUrl" .)
    "hubUrl" (printf "http://%s-hub.%s.svc:8081" $name .Release.Namespace)
    "masterUrl" (printf "http://%s-master.%s.svc:8643" $name .Release.Namespace)
    "proxyApiUrl" (printf "http://%s-proxy-api.%s.svc:8001" $name .Release.Namespace)
    "clusterId" (printf "%s-%s" .Release.Namespace $name)
    "admin" .Values.auth.admin
    "users" .Values.auth.users
    "spawner" .Values.hub.spawner
    "podTimeout" .Values.hub.podTimeout
    "notebooks" .Values.hub.notebooks
    "extraConfig" .Values.hub.extraConfig
    "masterExtraConfig" .Values.master.extraConfig
    "agent" .Values.agent.enabled
    "pools" (list .Values.agent.pool)
    "tasksNamespace" (include "detlab.tasksNamespace" .)
    "tasksImage" (include "detlab.image" (dict "root" . "name" .Values.images.tasks))
    "tasksServiceAccount" (printf "%s-tasks" $name)
    "tasksPriorityClass" (include "detlab.priorityClass" (dict "root" . "which" "tasks"))
    "pullPolicy" .Values.images.pullPolicy
    "pullSecrets" .Values.images.pullSecrets
    "certificate" (ternary (printf "%s-certificate" $name) "" (eq "yes" (include "detlab.pinned" .)))
    "checkpointStorage" (ternary (dict "type" "shared_fs" "host_path" "/srv/detlab/checkpoints") .Values.checkpoints.storage (ne "" $claim))
  | toPrettyJson -}}
{{- end -}}

{{/* Combinations of values that cannot work, refused before anything is made. */}}
{{- define "detlab.check" -}}
{{- $v := .Values -}}
{{- if and $v.agentOnly (not $v.agent.masterUrl) -}}
{{- fail "agentOnly: say where the master is, with agent.masterUrl" -}}
{{- end -}}
{{- if and $v.agentOnly (not $v.agent.enabled) -}}
{{- fail "agentOnly and agent.enabled: false leave nothing to install" -}}
{{- end -}}
{{- if and $v.agentOnly (not $v.agent.enrolmentTokenSecret) -}}
{{- fail "agentOnly: name the secret with the enrolment token, with agent.enrolmentTokenSecret (det agent enrol > token; kubectl create secret generic NAME --from-file=enrolment-token=token)" -}}
{{- end -}}
{{- if and $v.database.url (not $v.database.hubUrl) -}}
{{- fail "database.url without database.hubUrl: the Hub needs a database of its own there" -}}
{{- end -}}
{{- if and $v.database.hubUrl (not $v.database.url) -}}
{{- fail "database.hubUrl without database.url: the chart's own server makes both databases" -}}
{{- end -}}
{{- if and (not $v.agentOnly) (not $v.tls.enabled) (not (hasPrefix "https://" $v.publicUrl)) (not $v.agent.masterUrl) (not (has "--insecure-http" $v.agent.extraArgs)) -}}
{{- fail "tls.enabled: false, and publicUrl is not https: tokens would travel in the clear. Set publicUrl to the https address of what ends TLS, or, in a network that you trust, agent.extraArgs: [--insecure-http]" -}}
{{- end -}}
{{- if and (not $v.agent.namespace) (not $v.agentOnly) (not $v.checkpoints.storage) -}}
{{- $claim := $v.checkpoints.existingClaim | default (printf "%s-checkpoints" (include "detlab.fullname" .)) -}}
{{- if or $v.checkpoints.existingClaim (lookup "v1" "PersistentVolumeClaim" .Release.Namespace $claim) -}}
{{- fail (printf "the volume of checkpoints %s is in namespace %s, where tasks are no more by default: keep them there with agent.namespace=%s, or set checkpoints.storage, such as {type: s3, bucket: NAME}" $claim .Release.Namespace .Release.Namespace) -}}
{{- end -}}
{{- end -}}
{{- if and $v.agent.namespace (ne $v.agent.namespace .Release.Namespace) (not $v.agentOnly) (not $v.checkpoints.storage) -}}
{{- fail "agent.namespace: tasks in another namespace cannot mount the volume of checkpoints; set checkpoints.storage, such as {type: s3, bucket: NAME}" -}}
{{- end -}}
{{- if and $v.metrics.serviceMonitor.enabled (not $v.metrics.serviceMonitor.tokenSecret) -}}
{{- fail "metrics.serviceMonitor.enabled: name the secret with the token that Prometheus shows, with metrics.serviceMonitor.tokenSecret (a token of the Hub with the scope custom:detlab:read; kubectl create secret generic NAME --from-file=token)" -}}
{{- end -}}
{{- range $argument := $v.agent.extraArgs -}}
{{- range $option := list "--allow-mount" "--volume" "--allow-privileges" -}}
{{- if and (eq $v.agent.podSecurity "restricted") (hasPrefix $option $argument) -}}
{{- fail (printf "agent.extraArgs: %s allows what Pod Security's level restricted does not have: set agent.podSecurity=privileged, or use claims" $option) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $v.ingress.enabled (not $v.publicUrl) -}}
{{- fail "ingress.enabled: set publicUrl, whose host the Ingress is for" -}}
{{- end -}}
{{- end -}}
