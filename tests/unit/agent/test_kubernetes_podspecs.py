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
from detlab_agent.runtimes.kubernetes.options import KubernetesOptions, Rules, read_options
from detlab_agent.runtimes.kubernetes.pods import pod
from detlab_agent.runtimes.kubernetes.runtime import restricted
from detlab_agent.settings import AgentError
from testbed.kubernetes.made_pods import an_order, made_pod, node
from testbed.kubernetes.pod_attacks import (
    AGENTS_ALONE,
    ALLOWED_BY_THE_OPERATOR,
    ALLOWING,
    FULL,
    LABELS,
    NEVER,
    OPERATORS,
    side,
)
from testbed.kubernetes.pod_schema import element, faults, fields_of, paths
from testbed.kubernetes.pod_security import violations


@pytest.mark.parametrize("amount", [1e9, 2.5e9, 17179869184, 1048576.0, "1e9", "0.5", 8.5, "16Gi"])
def test_amounts_are_numbers_as_yaml_and_json_have_them(amount: object) -> None:
    resources = {"requests": {"memory": amount}}
    given = {"spec": {"containers": [{"name": MAIN_CONTAINER, "resources": resources}]}}
    assert not list(mistakes(given))


@pytest.mark.parametrize(
    "amount", [float("nan"), float("inf"), -1.0, 1e300, True, "1e+9", "1 Gi", "-1", "", [], "\u0664"]
)
def test_what_is_no_amount_is_refused(amount: object) -> None:
    given = {"spec": {"volumes": [{"name": "d", "emptyDir": {"sizeLimit": amount}}]}}
    assert list(mistakes(given))


def test_who_brings_shared_memory_is_told_what_sizes_it() -> None:
    """Most pod_specs for training have it, and the refusal led nowhere."""
    mounts = [{"name": "d", "mountPath": "/dev/shm"}]
    volumes = [{"name": "d", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}}]
    spec = {"volumes": volumes, "containers": [{"name": MAIN_CONTAINER, "volumeMounts": mounts}]}
    with pytest.raises(SetupFailed, match=r"set resources\.shm_size"):
        made_pod({"spec": spec})


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


@pytest.mark.parametrize("name", sorted(NEVER.keys() - AGENTS_ALONE))
def test_a_field_that_is_never_a_users_is_refused_at_submit(name: str) -> None:
    raw = {"environment": {"pod_spec": {"spec": NEVER[name]}}}
    for told in (expconf.check(raw), taskconf.check(raw, TaskKind.NOTEBOOK)):
        assert [one for one in told if one.path.startswith("environment.pod_spec.spec") and one.level == "error"]


@pytest.mark.parametrize(
    ("kind", "name"),
    # An annotation may be longer than a label.
    [
        (kind, name)
        for kind in ("labels", "annotations")
        for name in LABELS
        if (kind, name) != ("annotations", "a long value")
    ],
)
def test_a_pod_of_a_user_joins_no_service(kind: str, name: str) -> None:
    """A pod with the labels of the release's master received the cluster's traffic, and with it the tokens."""
    with pytest.raises(SetupFailed, match=rf"environment\.pod_spec\.metadata\.{kind}"):
        made_pod({"metadata": {kind: LABELS[name]}}, {f"allow_{kind}": ["user.detlab.io/*"]})


@pytest.mark.parametrize(
    "asked", ["app.kubernetes.io/name", "detlab.io/agent", "component", "kueue.x-k8s.io/queue-name"]
)
def test_keys_of_services_are_never_a_users_whatever_is_allowed(asked: str) -> None:
    assert reserved(asked)
    with pytest.raises(SetupFailed, match="is not a user's"):
        made_pod({"metadata": {"labels": {asked: "x"}}}, {"allow_labels": ["*e*", asked]})


@pytest.mark.parametrize(
    "asked",
    [
        {"volumes": [{"name": "s", "secret": {"secretName": "det-1-abc"}}]},
        side(envFrom=[{"secretRef": {"name": "det-1-abc"}}]),
        {"imagePullSecrets": [{"name": "det-1-abc"}]},
        {"volumes": [{"name": "h", "persistentVolumeClaim": {"claimName": "detlab-home-ada"}}]},
        {"volumes": [{"name": "h", "persistentVolumeClaim": {"claimName": "of-ada-only"}}]},
        {"volumes": [{"name": "h", "persistentVolumeClaim": {"claimName": "data-checkpoints"}}]},
    ],
)
def test_secrets_of_tasks_and_homes_of_users_match_no_pattern(asked: dict[str, Any]) -> None:
    wide = {"allow_secrets": ["d*", "?et-*"], "allow_pull_secrets": ["*"], "allow_claims": ["d*", "of-*"]}
    with pytest.raises(SetupFailed, match="is not one of allow_"):
        made_pod({"spec": asked}, {**OPERATORS, **wide, "home": {"claim": "of-{user}-only"}})


def test_whatever_slots_are_there_is_no_more_of_it_beside_them() -> None:
    asked = {"containers": [{"name": MAIN_CONTAINER, "resources": {"limits": {"example.com/tpu": 1}}}]}
    with pytest.raises(SetupFailed, match="its units are slots"):
        made_pod({"spec": asked}, {"gpu_resources": ["example.com/tpu", "nvidia.com/gpu"]})


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


@pytest.mark.parametrize(
    "image", ["https://u:p@r.io/x", "u:p@r.io/x:1", "r.io/x:1\n", "r.io/x y", "../x", "r.io/" + "x" * 500]
)
def test_what_is_no_image_is_refused(image: str) -> None:
    with pytest.raises(SetupFailed, match="is no image"):
        made_pod(container=ContainerSpec(image=image))
    with pytest.raises(SetupFailed, match="must be an image"):
        made_pod({"spec": {"containers": [{"name": "side", "image": image}]}})


CHECKPOINTS = {**OPERATORS, "volume_mounts": [{"name": "checkpoints", "mountPath": "/srv/checkpoints"}]}


@pytest.mark.parametrize(
    "path",
    [
        "//srv/checkpoints/x",
        "/srv/checkpoints",
        "/srv/checkpoints/of-ada/x",
        "/srv",
        "/home/detlab/x",
        "/d/of-ada/x",
        "/",
    ],
)
def test_no_volume_is_mounted_into_another_where_a_node_would_make_its_folder_as_root(path: str) -> None:
    """`/srv/checkpoints/FOLDER OF ADA/x` left a folder of root's in hers."""
    spec = {
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "d", "persistentVolumeClaim": {"claimName": "data-1"}}],
        "containers": [
            {
                "name": MAIN_CONTAINER,
                "volumeMounts": [{"name": "d", "mountPath": "/d"}, {"name": "v", "mountPath": path}],
            }
        ],
    }
    more = {"kind": "notebook", "service": ServiceSpec(), "user_home": True}
    with pytest.raises(SetupFailed, match=r"is in the way of|must be a(n absolute)? path"):
        made_pod({"spec": spec}, {**CHECKPOINTS, "allow_claims": ["data-*"], "home": {}}, **more)


def test_bind_mounts_are_in_no_volume_of_the_operator(tmp_path: Any) -> None:
    rules = Rules(KubernetesOptions.model_validate(CHECKPOINTS), "agent", allow_mounts=(tmp_path,), restricted=False)
    wrong = ("/srv/checkpoints/of-ada/x", "//srv/checkpoints/x", "/a/../srv/checkpoints/x", "data", "/")
    for path, good in (*((path, False) for path in wrong), ("/data", True)):
        asked = ContainerSpec(image="x", mounts=[{"host_path": str(tmp_path), "container_path": path}])
        if good:
            assert pod(an_order(container=asked), "p", node(), rules)
        else:
            with pytest.raises(SetupFailed, match=r"is in the way of|must be a path below /"):
                pod(an_order(container=asked), "p", node(), rules)


def test_an_empty_directory_may_have_others_in_it() -> None:
    mounts = [{"name": "v", "mountPath": "/v"}, {"name": "w", "mountPath": "/v/w"}, {"name": "v", "mountPath": "/x/v"}]
    spec = {
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {}}],
        "containers": [{"name": MAIN_CONTAINER, "volumeMounts": mounts}],
    }
    assert made_pod({"spec": spec}, CHECKPOINTS)


def test_containers_beside_get_the_operators_policy_and_memory() -> None:
    order = an_order(config={"environment": {"pod_spec": {"spec": side(imagePullPolicy="Always")}}})
    options = KubernetesOptions.model_validate({"image_pull_policy": "IfNotPresent"})
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
    "kept slots": {"holds": True},
    "password": {"container": ContainerSpec(image="r.io/x:1", registry_auth={"username": "u", "password": "p"})},
}


@pytest.mark.parametrize("more", KINDS.values(), ids=KINDS)
def test_every_pod_is_admitted_by_pod_security_and_known_to_the_api(more: dict[str, Any]) -> None:
    """No seccomp profile was set, so that a namespace at the level "restricted" took no pod of ours."""
    order = an_order(config={"environment": {"pod_spec": FULL}}, **more)
    options = KubernetesOptions.model_validate(
        {"image": "x", "home": {"size": "1Gi"}, **OPERATORS, "priority_class": "tasks"}
    )
    made = pod(order, "p", node(), Rules(options, "agent"))
    assert not list(violations(made["spec"]))
    assert not list(faults(made))


def test_restricted_is_the_level_unless_the_command_line_or_the_settings_say_more() -> None:
    class Flags:
        allow_mounts: tuple[str, ...] = ()
        volumes: tuple[str, ...] = ()
        allow_privileges = False

    flags: Any = Flags()
    assert restricted(KubernetesOptions(), flags)
    assert not restricted(KubernetesOptions(pod_security="privileged"), flags)
    flags.allow_mounts = ("/srv",)
    assert not restricted(KubernetesOptions(), flags)
    with pytest.raises(AgentError, match="which --allow-mount allow: leave these out"):
        restricted(KubernetesOptions(pod_security="restricted"), flags)


def test_a_restricted_agent_gives_no_host_directories_and_no_capabilities() -> None:
    for asked in (
        ContainerSpec(image="x", mounts=[{"host_path": "/srv", "container_path": "/srv"}]),
        ContainerSpec(image="x", add_capabilities=["SYS_PTRACE"]),
    ):
        order = an_order(container=asked)
        rules = Rules(KubernetesOptions(), "agent", allow_mounts=(), privileges=True)
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


@pytest.mark.slow
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


@pytest.mark.parametrize("late", [False, True])
def test_a_trial_without_hyperparameters_is_started_by_the_program_that_asks_for_them(late: bool) -> None:
    made = made_pod(point_due=late)
    (main,) = [one for one in made["spec"]["containers"] if one["name"] == MAIN_CONTAINER]
    python, *options, kind, program, name, file = main["command"]
    assert (python, options, name, file) == ("python3", ["-s", "-P"], "--exit-file", main["terminationMessagePath"])
    assert kind == ("-c" if late else "-m")
    assert (program == "detlab.launch.elsewhere") is not late
    assert "$" not in program, "Kubernetes would replace it"
    compile(program, "program", "exec" if late else "eval")
