"""Katib's keys: where each goes, and why the others are left out. The reference page is made from these tables."""

from __future__ import annotations

from detlab.schemas.expconf.raw.paths import Path, render

TARGETS: dict[str, str] = {
    "metadata.name": "name",
    "metadata.labels.*": "labels",
    "spec.objective.type": "searcher.smaller_is_better",
    "spec.objective.objectiveMetricName": "searcher.metric",
    "spec.objective.goal": "searcher.goal",
    "spec.algorithm.algorithmName": "searcher.name",
    "spec.algorithm.algorithmSettings[].name": "searcher",
    "spec.algorithm.algorithmSettings[].value": "searcher",
    "spec.earlyStopping.algorithmName": "stopping (median)",
    "spec.earlyStopping.algorithmSettings[].name": "stopping",
    "spec.earlyStopping.algorithmSettings[].value": "stopping",
    "spec.parallelTrialCount": "searcher.max_concurrent_trials",
    "spec.maxTrialCount": "searcher.max_trials",
    "spec.parameters[].name": "hyperparameters",
    "spec.parameters[].parameterType": "hyperparameters",
    "spec.parameters[].feasibleSpace.min": "hyperparameters",
    "spec.parameters[].feasibleSpace.max": "hyperparameters",
    "spec.parameters[].feasibleSpace.step": "hyperparameters",
    "spec.parameters[].feasibleSpace.distribution": "hyperparameters",
    "spec.parameters[].feasibleSpace.list[]": "hyperparameters",
    "spec.trialTemplate.trialParameters[].name": "entrypoint",
    "spec.trialTemplate.trialParameters[].reference": "entrypoint",
    "job.backoffLimit": "max_restarts",
    "replica.replicas": "resources.slots_per_trial",
    "job.nprocPerNode": "entrypoint",
    "job.trainer.numNodes": "resources.slots_per_trial",
    "job.trainer.numProcPerNode": "entrypoint",
    "job.activeDeadlineSeconds": "resources.max_time",
    "pod.activeDeadlineSeconds": "resources.max_time",
    "container.image": "environment.image",
    "container.imagePullPolicy": "environment.force_pull_image",
    "container.command[]": "entrypoint",
    "container.args[]": "entrypoint",
    "container.env[].name": "environment.environment_variables",
    "container.env[].value": "environment.environment_variables",
    "container.resources.limits.*/gpu": "resources.slots_per_trial",
    "container.resources.requests.*/gpu": "resources.slots_per_trial",
    "container.resources.limits.cpu": "resources.cpus",
    "container.resources.limits.memory": "resources.memory",
    "container.resources.requests.cpu": "resources.cpus",
    "container.resources.requests.memory": "resources.memory",
}
"""Where a key goes."""

REASONS: dict[str, str] = {
    "apiVersion": "says what the file is",
    "kind": "says what the file is",
    "metadata.namespace": "experiments are in workspaces and projects: set `workspace` and `project`",
    "status": "not needed: results, not configuration",
    "spec.objective.additionalMetricNames": "not needed: every metric that trials report is kept",
    "spec.objective.metricStrategies": "not needed: of other metrics every report is kept",
    "spec.maxFailedTrialCount": "a failed trial does not end the experiment; `max_restarts` says how often it is tried",
    "spec.metricsCollectorSpec": "trials report their metrics themselves; neither output nor files are read",
    "spec.resumePolicy": "not needed: every experiment can be paused and continued",
    "spec.algorithm.algorithmSettings[]": "the search method has no such setting",
    "spec.earlyStopping.algorithmSettings[]": "the policy has no such setting",
    "spec.trialTemplate.configMap": "the template is in the cluster: put its command into `entrypoint`",
    "spec.trialTemplate.primaryContainerName": "not needed: its container's command is the entrypoint",
    "container.name": "not needed: there is one container",
    "spec.trialTemplate.retain": "not needed: logs, metrics and checkpoints are kept",
    "spec.trialTemplate.primaryPodLabels": "not needed: trials report their metrics themselves",
    "spec.trialTemplate.successCondition": "not needed: a trial has succeeded if its command exits with 0",
    "spec.trialTemplate.failureCondition": "not needed: a trial has failed if its command does not exit with 0",
    "spec.trialTemplate.trialParameters[].description": "hyperparameters have no descriptions",
    "spec.trialTemplate.trialSpec.apiVersion": "says what the template is",
    "spec.trialTemplate.trialSpec.kind": "says what the template is",
    "spec.trialTemplate.trialSpec.metadata": "not needed: a trial has no object of its own in Kubernetes",
    "job.runtimeRef": "says what the template is",
    "job.runPolicy.cleanPodPolicy": "not needed: a trial's processes end with it",
    "replica.restartPolicy": "`max_restarts` says how often a trial is tried",
    "replica.template.metadata": "not needed: a trial has no pod of its own",
    "job.template.metadata": "not needed: a trial has no pod of its own",
    "pod.restartPolicy": "`max_restarts` says how often a trial is tried",
    "pod.volumes": "mount directories of the nodes by `bind_mounts`",
    "pod.nodeSelector": "choose nodes by `resources.resource_pool` or `resources.constraints`",
    "pod.affinity": "choose nodes by `resources.resource_pool` or `resources.constraints`",
    "pod.tolerations": "choose nodes by `resources.resource_pool` or `resources.constraints`",
    "pod.serviceAccountName": "not needed: a trial gets a token of its own, for this cluster alone",
    "pod.initContainers": "a trial has one container: prepare data in the entrypoint",
    "container.volumeMounts": "mount directories of the nodes by `bind_mounts`",
    "container.env[].valueFrom": "secrets and fields of Kubernetes are not there: set the variable yourself",
    "container.workingDir": "a trial runs in the folder of the code that is submitted",
    "container.resources": "no such resource here",
    "container.ports": "not needed: a trial may listen on any port",
    "sidecar": "a trial has one container",
}
"""Why a key, and all below it, is left out."""

TRIAL_SPEC = ("spec", "trialTemplate", "trialSpec")
_SPEC = (*TRIAL_SPEC, "spec")
_GPU = "/gpu"
_TRAINER: dict[str | int, str] = {
    **{key: key for key in ("image", "command", "args", "env")},
    "resourcesPerNode": "resources",
}
"""Keys of a TrainJob's trainer that are those of a container."""


def replicas_key(path: Path) -> bool:
    """Whether a place is inside of the replicas of a distributed job."""
    return path[:4] == _SPEC and len(path) > 5 and str(path[4]).endswith("ReplicaSpecs")


def shape(path: Path) -> str:
    """Return which key of Katib a place is: `spec.parameters[].name`, `container.image`, `pod.volumes[]`."""
    head, rest = "", path
    if replicas_key(path):
        head, rest = "replica", path[6:]
    elif path[:4] == _SPEC and len(path) > 4:
        head, rest = "job", path[4:]
    if head == "job" and rest[0] == "trainer" and len(rest) > 1 and rest[1] in _TRAINER:
        head, rest = "container", (_TRAINER[rest[1]], *rest[2:])
    if head and rest[:2] == ("template", "spec") and len(rest) > 2:
        head, rest = "pod", rest[2:]
        if rest[0] == "containers" and len(rest) > 1:
            head, rest = "container", rest[2:]
    if rest[:2] == ("metadata", "labels") and len(rest) == 3:
        rest = ("metadata", "labels", "*")
    if head == "container" and rest[:1] == ("resources",) and str(rest[-1]).endswith(_GPU):
        rest = (*rest[:-1], f"*{_GPU}")
    parts = [f"{head}" if head else "", *[_part(part) for part in rest]]
    return "".join(parts).lstrip(".").replace(".[]", "[]") or render(path)


def _part(part: str | int) -> str:
    return "[]" if isinstance(part, int) else f".{part}"
