"""What users may say of their pods: an allow-list, rendered anew, and what an operator has to allow. No cluster."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detlab.schemas import expconf, taskconf
from detlab.schemas.expconf.podspec import mistakes
from detlab.schemas.podspec import MAIN_CONTAINER, reserved
from detlab.schemas.taskwire import TaskKind
from detlab.schemas.wire import ContainerSpec, ServiceSpec
from detlab_agent.runtimes.base import SetupFailed
from detlab_agent.runtimes.kubernetes.options import Options, Rules, read_options
from detlab_agent.runtimes.kubernetes.pods import pod
from detlab_agent.runtimes.kubernetes.runtime import restricted
from detlab_agent.settings import AgentError
from testbed.kubernetes.made_pods import an_order, made_pod, node
from testbed.kubernetes.pod_schema import element, faults, fields_of, paths
from testbed.kubernetes.pod_security import violations

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


def test_what_every_user_may_say_is_in_the_pod() -> None:
    made = made_pod(FULL)
    spec = made["spec"]
    assert made["metadata"]["labels"]["user.detlab.io/team"] == "vision"
    main, beside = spec["containers"]
    assert (main["image"], main["resources"]["limits"]["cpu"]) == ("lab/x:1", "2")
    assert {"name": "scratch", "mountPath": "/scratch", "subPath": "a/b"} in main["volumeMounts"]
    assert beside["livenessProbe"] == {"exec": {"command": ["true"]}, "periodSeconds": 5}
    assert spec["initContainers"][0]["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 60
    assert not list(faults(made))
    assert not list(violations(spec))


@pytest.mark.parametrize("asked", ALLOWED_BY_THE_OPERATOR.values(), ids=ALLOWED_BY_THE_OPERATOR)
def test_what_an_operator_may_allow_is_refused_until_they_do(asked: dict[str, Any]) -> None:
    assert not list(mistakes({"spec": asked})), "the master cannot know"
    with pytest.raises(SetupFailed, match="allow"):
        made_pod({"spec": asked})
    made = made_pod({"spec": asked}, ALLOWING)
    assert not list(faults(made))
    assert not list(violations(made["spec"]))


@pytest.mark.parametrize("asked", NEVER.values(), ids=NEVER)
def test_what_nobody_may_say_is_refused(asked: Any) -> None:
    with pytest.raises(SetupFailed, match=r"environment\.pod_spec\.spec"):
        made_pod({"spec": asked}, {**ALLOWING, **OPERATORS})


AGENTS_ALONE = {
    "a volume called like the operator's", "host directory", "a class for all", "all of the disk", "the disk in two",
    "home of another", "claim", "secret of a task", "secret of a task in a variable",
    "secret of a task as variables", "ConfigMap of the release", "ConfigMap as variables", "ConfigMap in a variable",
    "password of a task", "account", "priority class", "scheduler", "runtime", "devices by claims", "device",
    "too many devices", "control planes",
}  # fmt: skip
"""What the master cannot know, since another operator may allow it."""


@pytest.mark.parametrize("name", sorted(NEVER.keys() - AGENTS_ALONE))
def test_a_field_that_is_never_a_users_is_refused_at_submit(name: str) -> None:
    raw = {"environment": {"pod_spec": {"spec": NEVER[name]}}}
    for told in (expconf.check(raw), taskconf.check(raw, TaskKind.NOTEBOOK)):
        assert [one for one in told if one.path.startswith("environment.pod_spec.spec") and one.level == "error"]


@pytest.mark.parametrize("kind", ["labels", "annotations"])
@pytest.mark.parametrize("asked", LABELS.values(), ids=LABELS)
def test_a_pod_of_a_user_joins_no_service(asked: dict[str, Any], kind: str) -> None:
    """A pod with the labels of the release's master received the cluster's traffic, and with it the tokens."""
    if kind == "annotations" and "x" * 64 in asked.values():
        pytest.skip("annotations are longer")
    with pytest.raises(SetupFailed, match=rf"environment\.pod_spec\.metadata\.{kind}"):
        made_pod({"metadata": {kind: asked}}, {f"allow_{kind}": ["user.detlab.io/*"]})


@pytest.mark.parametrize(
    "asked", ["app.kubernetes.io/name", "detlab.io/agent", "component", "kueue.x-k8s.io/queue-name"]
)
def test_keys_of_services_are_never_a_users_whatever_is_allowed(asked: str) -> None:
    assert reserved(asked)
    with pytest.raises(SetupFailed, match="is not a user's"):
        made_pod({"metadata": {"labels": {asked: "x"}}}, {"allow_labels": ["*e*", asked]})


def test_all_mistakes_are_told_at_once_with_their_paths_and_what_is_meant() -> None:
    asked = {
        "node_selector": {"a": "b"},
        "volumes": [{"name": "data", "emptydir": {}}],
        "containers": [{"name": "side", "imagee": "x", "volumeMounts": [{"name": "dta", "mountPath": "/d"}]}],
    }
    told = {one.path: one.hint or "" for one in mistakes({"metdata": {}, "spec": asked})}
    base = "environment.pod_spec"
    assert told[f"{base}.metdata"].startswith("did you mean `metadata`? allowed here: apiVersion, kind, metadata, spec")
    assert told[f"{base}.spec.node_selector"].startswith("did you mean `nodeSelector`? allowed here: containers, ")
    assert told[f"{base}.spec.volumes[0].emptydir"].startswith("did you mean `emptyDir`? allowed here: name, configMap")
    assert told[f"{base}.spec.containers[0].imagee"].startswith("did you mean `image`?")
    assert told[f"{base}.spec.containers[0].volumeMounts[0].name"] == "did you mean `data`?"


def test_containers_beside_get_the_operators_policy_and_memory() -> None:
    order = an_order(config={"environment": {"pod_spec": {"spec": side(imagePullPolicy="Always")}}})
    options = Options.model_validate({"image_pull_policy": "IfNotPresent"})
    made = pod(order, "p", node(), Rules(options, "agent", memory=1 << 30))
    beside = made["spec"]["containers"][1]
    assert beside["imagePullPolicy"] == "IfNotPresent"
    assert beside["resources"]["limits"]["memory"] == str(1 << 30)


KINDS: dict[str, dict[str, Any]] = {
    "trial": {},
    "notebook": {"kind": "notebook", "service": ServiceSpec(), "user_home": True},
    "shell": {"kind": "shell", "service": ServiceSpec(), "user_home": True},
    "tensorboard": {"kind": "tensorboard", "service": ServiceSpec()},
    "gc": {"kind": "gc"},
    "kept slots": {"entrypoint": ["x", "--kind", "hold"]},
    "password": {"container": ContainerSpec(image="r.io/x:1", registry_auth={"username": "u", "password": "p"})},
}


@pytest.mark.parametrize("more", KINDS.values(), ids=KINDS)
def test_every_pod_is_admitted_by_pod_security_and_known_to_the_api(more: dict[str, Any]) -> None:
    """No seccomp profile was set, so that a namespace at the level "restricted" took no pod of ours."""
    more = dict(more)
    order = an_order(config={"environment": {"pod_spec": FULL}}, **{k: v for k, v in more.items() if k != "entrypoint"})
    if "entrypoint" in more:
        order.launch.entrypoint = more["entrypoint"]
    options = Options.model_validate({"image": "x", "home": {"size": "1Gi"}, **OPERATORS, "priority_class": "tasks"})
    made = pod(order, "p", node(), Rules(options, "agent"))
    assert not list(violations(made["spec"]))
    assert not list(faults(made))


def test_restricted_is_the_level_unless_the_command_line_or_the_settings_say_more() -> None:
    class Flags:
        allow_mounts: tuple[str, ...] = ()
        volumes: tuple[str, ...] = ()
        allow_privileges = False

    flags: Any = Flags()
    assert restricted(Options(), flags)
    assert not restricted(Options(pod_security="privileged"), flags)
    flags.allow_mounts = ("/srv",)
    assert not restricted(Options(), flags)
    with pytest.raises(AgentError, match="which --allow-mount allow: leave these out"):
        restricted(Options(pod_security="restricted"), flags)


def test_a_restricted_agent_gives_no_host_directories_and_no_capabilities() -> None:
    for asked in (
        ContainerSpec(image="x", mounts=[{"host_path": "/srv", "container_path": "/srv"}]),
        ContainerSpec(image="x", add_capabilities=["SYS_PTRACE"]),
    ):
        order = an_order(container=asked)
        rules = Rules(Options(), "agent", allow_mounts=(), privileges=True)
        with pytest.raises(SetupFailed, match=r"pod_security: (restricted|privileged)"):
            pod(order, "p", node(), rules)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("allow_claims: ['*']", "homes of all users"),
        ("allow_config_maps: ['*']", "every ConfigMap"),
        ("allow_labels: ['*']", "join Services"),
        ("allow_labels: ['app.kubernetes.io/*']", "is never for users"),
        ("allow_annotations: ['detlab.io/x']", "is never for users"),
        ("allow_secrets: ['det-*']", "are the secrets of tasks"),
        ("allow_resources: {nvidia.com/gpu: 1}", "its units are slots"),
        ("allow_resources: {rdma/hca: 0}", "greater than or equal to 1"),
        ("pod_security: baseline", "restricted"),
        ("groups: {vision: {namespace: Not_One}}", "namespace"),
    ],
)
def test_settings_that_no_operator_can_mean_are_refused(setting: str, said: str, tmp_path: Any) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(setting)
    with pytest.raises(AgentError, match=said):
        read_options(path)


# --- fuzz: any fields of the API, at any depth

TEXTS = st.sampled_from(
    ["", "a", "x-1", MAIN_CONTAINER, "det-shm", "checkpoints", "data-1", "keys", "conf", "fast", "Always", "Memory",
     "/a", "/etc", "../a", "$(A)", "10Gi", "1", "Exists", "In", "status.podIP", "a/b", "rdma/hca", "nvidia.com/gpu",
     "lab/x:1", "a b", "a\n", "app.kubernetes.io/name", "user.detlab.io/a", "Localhost", "volcano", "169.254.169.254"]
)  # fmt: skip
ODD = st.one_of(st.none(), st.booleans(), st.integers(-2, 3), TEXTS, st.just([]), st.just({}))


def values(kind: str, depth: int = 0) -> st.SearchStrategy[Any]:
    """Return values of a type of the API; now and then others."""
    shape, of = element(kind)
    if shape == "list":
        return st.one_of(st.lists(values(of, depth + 1), max_size=2), ODD) if depth < 12 else st.just([])
    if shape == "dict":
        return st.one_of(st.dictionaries(TEXTS, values(of, depth + 1), max_size=2), ODD)
    plain = {"str": TEXTS, "int": st.integers(-2, 2000), "bool": st.booleans(), "datetime": TEXTS, "object": ODD}
    if of in plain:
        return st.one_of(plain[of], plain[of], plain[of], ODD)
    known = fields_of(of)
    return st.sets(st.sampled_from(sorted(known)), max_size=3).flatmap(
        lambda chosen: st.fixed_dictionaries(
            {key: st.deferred(lambda key=key: values(known[key], depth + 1)) for key in chosen}
        )
    )


@st.composite
def pod_specs(draw: st.DrawFn) -> Any:
    """Return what all may say, with fields of the API put in at random places."""
    found: Any = copy.deepcopy(FULL)
    for key, value in copy.deepcopy(draw(st.sampled_from(list(ALLOWED_BY_THE_OPERATOR.values())))).items():
        if isinstance(value, list):
            more = [{**one, "name": "side-2"} if "image" in one else one for one in value]
            found["spec"].setdefault(key, []).extend(one for one in more if one.get("name") != MAIN_CONTAINER)
        else:
            found["spec"][key] = value
    for _ in range(draw(st.integers(0, 2))):
        at, kind = found, "V1Pod"
        while True:
            if isinstance(at, list):
                if not at:
                    break
                at, kind = draw(st.sampled_from(at)), element(kind)[1]
                continue
            if not isinstance(at, dict) or element(kind)[0] == "dict" or not kind.startswith("V1"):
                break
            known = fields_of(kind)
            inner = [key for key, value in at.items() if isinstance(value, dict | list) and key in known]
            if inner and draw(st.integers(0, 3)):
                key = draw(st.sampled_from(inner))
                at, kind = at[key], known[key]
                continue
            key = draw(st.sampled_from(sorted(known)))
            at[key] = draw(values(known[key]))
            break
    return found


FIELDS = {
    "apiVersion", "kind", "metadata", "name", "labels", "annotations", "spec", "containers", "initContainers",
    "volumes", "nodeSelector", "tolerations", "affinity", "nodeAffinity",
    "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution",
    "nodeSelectorTerms", "matchExpressions", "matchFields", "key", "operator", "values", "value", "effect",
    "tolerationSeconds", "weight", "preference", "priorityClassName", "serviceAccountName", "schedulerName",
    "runtimeClassName", "resourceClaims", "resourceClaimName", "resourceClaimTemplateName", "imagePullSecrets",
    "terminationGracePeriodSeconds", "image", "command", "args", "workingDir", "env", "envFrom", "prefix",
    "valueFrom", "configMapKeyRef", "configMapRef", "secretKeyRef", "secretRef", "fieldRef", "fieldPath",
    "resourceFieldRef", "resource", "containerName", "divisor", "optional", "resources", "limits", "requests",
    "claims", "request", "volumeMounts", "mountPath", "readOnly", "subPath", "imagePullPolicy", "livenessProbe",
    "readinessProbe", "startupProbe", "lifecycle", "preStop", "postStart", "exec", "initialDelaySeconds",
    "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold", "configMap", "secret", "secretName",
    "emptyDir", "medium", "sizeLimit", "downwardAPI", "items", "path", "mode", "defaultMode", "ephemeral",
    "volumeClaimTemplate", "accessModes", "storageClassName", "persistentVolumeClaim", "claimName",
    "automountServiceAccountToken", "enableServiceLinks", "restartPolicy", "securityContext", "fsGroup",
    "seccompProfile", "type", "runAsUser", "runAsGroup", "runAsNonRoot", "allowPrivilegeEscalation", "capabilities",
    "drop", "terminationMessagePath", "terminationMessagePolicy",
}  # fmt: skip
"""Every field that a pod of an agent without host directories has, written out: those of users, and ours."""


@settings(max_examples=400, deadline=None)
@given(pod_specs(), st.booleans())
def test_whatever_a_pod_spec_says_the_pod_is_ours(asked: Any, generous: bool) -> None:
    told = [one.path for one in mistakes(asked)]
    assert all(path.startswith("environment.pod_spec") for path in told)
    settings_ = {**OPERATORS, **(ALLOWING if generous else {})}
    try:
        made = made_pod(asked, settings_)
    except SetupFailed:
        return
    assert not told
    assert not list(faults(made)), "a field that the API does not know"
    assert {path.rpartition(".")[2] for path in paths(made)} <= FIELDS
    spec = made["spec"]
    assert not list(violations(spec))
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        assert (container["securityContext"]["runAsUser"], container["securityContext"]["runAsGroup"]) == (23000, 23001)
        assert "ports" not in container
        given = {**container["resources"]["limits"], **container["resources"]["requests"]}
        allowed = {"cpu", "memory", "ephemeral-storage"} | ({"rdma/hca"} if generous else set())
        assert given.keys() <= allowed | ({"nvidia.com/gpu"} if container["name"] == MAIN_CONTAINER else set())
    main = next(one for one in spec["containers"] if one["name"] == MAIN_CONTAINER)
    assert (main["image"], main["resources"]["limits"]["nvidia.com/gpu"]) == ("lab/x:1", "1")
    assert main["command"][:4] == ["python3", "-s", "-P", "-m"]
    assert spec["automountServiceAccountToken"] is False
    labels = made["metadata"]["labels"]
    assert labels["detlab.io/owner"] == "mallory"
    strange = {key for key in labels if not key.startswith(("detlab.io/", "user.detlab.io/"))}
    assert strange <= {"app.kubernetes.io/managed-by", *({"team"} if generous else set())}
    operators = next(one for one in spec["volumes"] if one["name"] == "checkpoints")
    assert operators["persistentVolumeClaim"] == {"claimName": "data-checkpoints"}
    if not generous:
        sources = {key for one in spec["volumes"] for key in one} - {"name"}
        assert sources <= {"emptyDir", "downwardAPI", "persistentVolumeClaim"}
        assert "tolerations" not in spec or spec["tolerations"] == []
