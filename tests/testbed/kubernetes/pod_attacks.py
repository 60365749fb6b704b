"""What users may say of their pods, what an operator may allow them, and what nobody may say: each an attack."""

from __future__ import annotations

from typing import Any

from detlab.schemas.podspec import MAIN_CONTAINER

SIDECAR = {"name": "side", "image": "lab/side:1"}
FULL: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"labels": {"user.detlab.io/team": "vision"}, "annotations": {"user.detlab.io/why": "a paper"}},
    "spec": {
        "nodeSelector": {"rack": "r1", "kubernetes.io/arch": "amd64"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]
                }
            }
        },
        "terminationGracePeriodSeconds": 60,
        "volumes": [
            {"name": "scratch", "emptyDir": {"sizeLimit": "10Gi"}},
            {"name": "me", "downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        ],
        "initContainers": [{**SIDECAR, "name": "first", "command": ["true"], "restartPolicy": "Always"}],
        "containers": [
            {
                "name": MAIN_CONTAINER,
                "resources": {"limits": {"cpu": 2, "ephemeral-storage": "5Gi"}},
                "volumeMounts": [{"name": "scratch", "mountPath": "/scratch", "subPath": "a/b"}],
            },
            {
                **SIDECAR,
                "args": ["x"],
                "env": [
                    {"name": "A", "value": "1"},
                    {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                ],
                "livenessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 5},
                "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
                "resources": {"requests": {"memory": "1Gi"}},
            },
        ],
    },
}
"""What every user may say."""
ALLOWING: dict[str, Any] = {
    "allow_claims": ["data-*"],
    "allow_secrets": ["keys"],
    "allow_config_maps": ["conf"],
    "allow_pull_secrets": ["mine"],
    "allow_service_accounts": ["reader"],
    "allow_priority_classes": ["urgent"],
    "allow_schedulers": ["volcano"],
    "allow_runtime_classes": ["gvisor"],
    "allow_resource_claims": ["dev"],
    "allow_storage_classes": ["fast"],
    "allow_resources": {"rdma/hca": 2},
    "allow_tolerations": ["spot"],
    "allow_labels": ["team", "user.detlab.io/*"],
    "allow_annotations": ["k8s.v1.cni.cncf.io/networks", "user.detlab.io/*"],
}


def ephemeral(**more: Any) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "fast"}
    return {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {**spec, **more}}}}


def side(**more: Any) -> dict[str, Any]:
    return {"containers": [{**SIDECAR, **more}]}


ALLOWED_BY_THE_OPERATOR = {
    "claim": {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data-1", "readOnly": True}}]},
    "secret": {"volumes": [{"name": "s", "secret": {"secretName": "keys"}}]},
    "secret in a variable": side(env=[{"name": "K", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "k"}}}]),
    "secret as variables": side(envFrom=[{"secretRef": {"name": "keys"}}]),
    "ConfigMap": {"volumes": [{"name": "c", "configMap": {"name": "conf"}}]},
    "ConfigMap in a variable": side(
        env=[{"name": "K", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "k"}}}]
    ),
    "ConfigMap as variables": side(envFrom=[{"configMapRef": {"name": "conf"}, "prefix": "C_"}]),
    "pull secret": {"imagePullSecrets": [{"name": "mine"}]},
    "service account": {"serviceAccountName": "reader"},
    "priority class": {"priorityClassName": "urgent"},
    "scheduler": {"schedulerName": "volcano"},
    "runtime class": {"runtimeClassName": "gvisor"},
    "resource claim": {
        "resourceClaims": [{"name": "d", "resourceClaimTemplateName": "dev"}],
        "containers": [{"name": MAIN_CONTAINER, "resources": {"claims": [{"name": "d"}]}}],
    },
    "ephemeral volume": {"volumes": [ephemeral()]},
    "resource": {"containers": [{"name": MAIN_CONTAINER, "resources": {"limits": {"rdma/hca": 2}}}]},
    "toleration": {"tolerations": [{"key": "spot", "operator": "Exists"}]},
}
"""What an operator may allow, and nobody else."""


def volume(**source: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "v", **source}]}


NEVER = {
    "hostNetwork": {"hostNetwork": True},
    "hostPID": {"hostPID": True},
    "hostIPC": {"hostIPC": True},
    "hostUsers": {"hostUsers": False},
    "hostAliases": {"hostAliases": [{"ip": "1.2.3.4", "hostnames": ["hub"]}]},
    "hostname": {"hostname": "hub"},
    "subdomain": {"subdomain": "rel-detlab-hub"},
    "setHostnameAsFQDN": {"setHostnameAsFQDN": True},
    "dnsConfig": {"dnsConfig": {"nameservers": ["1.2.3.4"]}},
    "nodeName": {"nodeName": "n"},
    "priority": {"priority": 1_000_000},
    "preemptionPolicy": {"preemptionPolicy": "PreemptLowerPriority"},
    "overhead": {"overhead": {"cpu": "1"}},
    "restartPolicy": {"restartPolicy": "Always"},
    "automount": {"automountServiceAccountToken": True},
    "old account": {"serviceAccount": "reader"},
    "shared processes": {"shareProcessNamespace": True},
    "service links": {"enableServiceLinks": True},
    "ephemeralContainers": {"ephemeralContainers": [SIDECAR]},
    "readinessGates": {"readinessGates": [{"conditionType": "x"}]},
    "schedulingGates": {"schedulingGates": [{"name": "x"}]},
    "schedulingGroup": {"schedulingGroup": {"podGroupName": "other"}},
    "spread": {"topologySpreadConstraints": [{"maxSkew": 1}]},
    "others kept away": {"affinity": {"podAntiAffinity": {}}},
    "nodes by name": {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": []}]}
            }
        }
    },
    "root": {"securityContext": {"runAsUser": 0}},
    "another's uid": side(securityContext={"runAsUser": 23002}),
    "privileged": side(securityContext={"privileged": True}),
    "sysctls": {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}},
    "first container as root": {"initContainers": [{**SIDECAR, "securityContext": {"runAsUser": 0}}]},
    "hostPort": side(ports=[{"containerPort": 80, "hostPort": 80}]),
    "named port": side(ports=[{"containerPort": 8643, "name": "http"}]),
    "named port of the task": {
        "containers": [{"name": MAIN_CONTAINER, "ports": [{"name": "http", "containerPort": 1}]}]
    },
    "request of the node": side(livenessProbe={"httpGet": {"host": "169.254.169.254", "port": 80}}),
    "connection of the node": side(readinessProbe={"tcpSocket": {"host": "10.0.0.1", "port": 22}}),
    "call of the node": side(startupProbe={"grpc": {"port": 1}, "exec": {"command": ["x"]}}),
    "request at the end": side(lifecycle={"preStop": {"httpGet": {"host": "169.254.169.254", "port": 80}}}),
    "request at the start": side(lifecycle={"postStart": {"httpGet": {"port": 80}}}),
    "block device": side(volumeDevices=[{"name": "v", "devicePath": "/dev/x"}]),
    "subPathExpr": {
        **volume(emptyDir={}),
        **side(volumeMounts=[{"name": "v", "mountPath": "/v", "subPathExpr": "$(A)"}]),
    },
    "subPath up": {
        **volume(emptyDir={}),
        **side(volumeMounts=[{"name": "v", "mountPath": "/v", "subPath": "a/../../b"}]),
    },
    "mounts shared with the node": {
        **volume(emptyDir={}),
        **side(volumeMounts=[{"name": "v", "mountPath": "/v", "mountPropagation": "Bidirectional"}]),
    },
    "the operator's volume": side(volumeMounts=[{"name": "checkpoints", "mountPath": "/c"}]),
    "the agent's volume": {
        **volume(emptyDir={}),
        **side(volumeMounts=[{"name": "det-shm", "mountPath": "/c"}]),
    },
    "a volume called like the operator's": {"volumes": [{"name": "checkpoints", "emptyDir": {}}]},
    "a volume called like the agent's": {"volumes": [{"name": "det-host-0", "emptyDir": {}}]},
    "two sources": volume(emptyDir={}, secret={"secretName": "keys"}),
    "token of an account": volume(projected={"sources": [{"serviceAccountToken": {"path": "t"}}]}),
    "projected ConfigMap": volume(projected={"sources": [{"configMap": {"name": "conf"}}]}),
    "csi": volume(csi={"driver": "secrets-store.csi.k8s.io"}),
    "nfs": volume(nfs={"server": "10.0.0.1", "path": "/"}),
    "iscsi": volume(iscsi={"targetPortal": "10.0.0.1", "iqn": "x", "lun": 0}),
    "image": volume(image={"reference": "x"}),
    "gitRepo": volume(gitRepo={"repository": "x"}),
    "host directory": volume(hostPath={"path": "/etc"}),
    "host socket": volume(hostPath={"path": "/run/containerd.sock", "type": "Socket"}),
    "clone": {"volumes": [ephemeral(dataSource={"kind": "PersistentVolumeClaim", "name": "detlab-home-ada"})]},
    "clone by reference": {"volumes": [ephemeral(dataSourceRef={"kind": "VolumeSnapshot", "name": "x"})]},
    "a volume that is there": {"volumes": [ephemeral(volumeName="pv-of-ada")]},
    "a volume by its labels": {"volumes": [ephemeral(selector={"matchLabels": {"owner": "ada"}})]},
    "a class for all": {"volumes": [ephemeral(storageClassName="shared")]},
    "all of the disk": {"volumes": [ephemeral(resources={"requests": {"storage": "101Gi"}})]},
    "the disk in two": {
        "volumes": [
            {**ephemeral(resources={"requests": {"storage": "60Gi"}}), "name": f"e{number}"} for number in range(2)
        ]
    },
    "home of another": volume(persistentVolumeClaim={"claimName": "detlab-home-ada"}),
    "claim": volume(persistentVolumeClaim={"claimName": "hub-database"}),
    "secret of a task": volume(secret={"secretName": "det-other"}),
    "secret of a task in a variable": side(
        env=[{"name": "K", "valueFrom": {"secretKeyRef": {"name": "det-a", "key": "DET_PARCEL"}}}]
    ),
    "secret of a task as variables": side(envFrom=[{"secretRef": {"name": "det-a"}}]),
    "ConfigMap of the release": volume(configMap={"name": "rel-detlab-config"}),
    "ConfigMap as variables": side(envFrom=[{"configMapRef": {"name": "rel-detlab-config"}}]),
    "ConfigMap in a variable": side(
        env=[{"name": "K", "valueFrom": {"configMapKeyRef": {"name": "rel-detlab-config", "key": "k"}}}]
    ),
    "file as variables": side(env=[{"name": "K", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p"}}}]),
    "password of a task": {"imagePullSecrets": [{"name": "det-other"}]},
    "account": {"serviceAccountName": "rel-detlab-agent"},
    "priority class": {"priorityClassName": "system-node-critical"},
    "scheduler": {"schedulerName": "my-own"},
    "runtime": {"runtimeClassName": "runc-privileged"},
    "devices by claims": {"resourceClaims": [{"name": "d", "resourceClaimTemplateName": "all-gpus"}]},
    "GPU beside the slots": {"containers": [{"name": MAIN_CONTAINER, "resources": {"limits": {"nvidia.com/gpu": 8}}}]},
    "GPU of a container beside": side(resources={"limits": {"nvidia.com/mig-1g.5gb": 1}}),
    "GPU requested": {"initContainers": [{**SIDECAR, "resources": {"requests": {"amd.com/gpu": 1}}}]},
    "device": side(resources={"limits": {"example.com/x": 1}}),
    "too many devices": {
        "containers": [
            {"name": MAIN_CONTAINER, "resources": {"limits": {"rdma/hca": 2}}},
            {**SIDECAR, "resources": {"limits": {"rdma/hca": 1}}},
        ]
    },
    "every taint": {"tolerations": [{"operator": "Exists"}]},
    "control planes": {"tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]},
    "image for the task": {"containers": [{"name": MAIN_CONTAINER, "image": "x"}]},
    "command for the task": {"containers": [{"name": MAIN_CONTAINER, "command": ["x"]}]},
    "variables for the task": {"containers": [{"name": MAIN_CONTAINER, "env": [{"name": "A", "value": "b"}]}]},
    "the task's container twice": {"containers": [{"name": MAIN_CONTAINER}, {"name": MAIN_CONTAINER}]},
    "the task's container first": {"initContainers": [{"name": MAIN_CONTAINER, "image": "x"}]},
    "cached images": side(imagePullPolicy="Never"),
    "standard input": side(stdin=True),
    "message anywhere": side(terminationMessagePath="/etc/shadow"),
    "forty minutes to end": {"terminationGracePeriodSeconds": 2400},
    "no mapping": [1],
    "text": "hostNetwork: true",
    "containers that are none": {"containers": [None, 1, "x", []]},
}
"""What no operator allows here, though all of `ALLOWING` is."""
LABELS = {
    "a Service's": {"app.kubernetes.io/name": "detlab", "app.kubernetes.io/component": "master"},
    "Helm's": {"helm.sh/chart": "detlab"},
    "detlab's": {"detlab.io/task": "other"},
    "detlab's below": {"release.detlab.io/part": "master"},
    "the user's domain, but not quite": {"xuser.detlab.io/a": "b"},
    "Kueue's": {"kueue.x-k8s.io/queue-name": "of-another-team"},
    "JupyterHub's": {"hub.jupyter.org/username": "ada"},
    "a chart's": {"app": "nginx"},
    "a component": {"component": "singleuser-server"},
    "not allowed": {"example.org/team": "a"},
    "a domain in large letters": {"Kubernetes.io/a": "b"},
    "no key": {"a b": "c"},
    "a long value": {"user.detlab.io/a": "x" * 64},
    "a line": {"user.detlab.io/a\n": "b"},
    "a number": {"user.detlab.io/a": 1},
}
OPERATORS = {"volumes": [{"name": "checkpoints", "persistentVolumeClaim": {"claimName": "data-checkpoints"}}]}
AGENTS_ALONE = {
    "a volume called like the operator's", "host directory", "a class for all", "all of the disk", "the disk in two",
    "home of another", "claim", "secret of a task", "secret of a task in a variable",
    "secret of a task as variables", "ConfigMap of the release", "ConfigMap as variables", "ConfigMap in a variable",
    "password of a task", "account", "priority class", "scheduler", "runtime", "devices by claims", "device",
    "too many devices", "control planes",
}  # fmt: skip
"""What the master cannot know, since another operator may allow it."""
