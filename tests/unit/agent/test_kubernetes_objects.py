"""What the agent of a Kubernetes cluster makes of objects, and objects of what it is told; no cluster."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import Counter
from types import SimpleNamespace

import pytest

from detlab.schemas.podspec import MAIN_CONTAINER
from detlab.schemas.wire import NodeHello
from detlab_agent.runtimes.kubernetes.endings import exit_of, is_over, kept_pod, waiting_for
from detlab_agent.runtimes.kubernetes.homes import claim, claim_name, mounted
from detlab_agent.runtimes.kubernetes.nodes import closed, kept_node, offered, quantity
from detlab_agent.runtimes.kubernetes.options import Home, KubernetesOptions, Rules, read_options
from detlab_agent.runtimes.kubernetes.others import OtherPods, TakenSlots, kept_other
from detlab_agent.runtimes.kubernetes.pods import label_value, pod_name
from detlab_agent.runtimes.kubernetes.scaling import PlacedPod, by_whom, come_already, count_elsewhere, nodes_to_come
from detlab_agent.settings import AgentError


@pytest.mark.parametrize(
    ("text", "number"),
    [("2", 2), ("1500m", 1.5), ("4Gi", 4 << 30), ("1e3", 1000), ("129M", 129e6), ("0.5", 0.5), ("1E", 1e18)],
)
def test_quantities_are_those_of_kubernetes(text: str, number: float) -> None:
    assert quantity(text) == pytest.approx(number)


@pytest.mark.parametrize("text", ["", "x", "1Q", "1 Gi", "--1"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no quantity"):
        quantity(text)


@pytest.mark.parametrize("text", ["alice", "a" * 63, "ünï/côdé", "-x-", "", "a" * 200, "a.b_c-1"])
def test_any_text_fits_into_a_label(text: str) -> None:
    made = label_value(text)
    assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", made)
    assert made == text or text not in {"alice", "a.b_c-1"}


def test_names_of_pods_are_valid_and_differ_where_records_do() -> None:
    records = ["1.abc.1", "1.abc.1~0f", "1.ABC.1", "x" * 150, "x" * 149 + "y"]
    names = [pod_name(record) for record in records]
    assert len(set(names)) == len(records)
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name) for name in names)


DIGESTED = f"alice-{hashlib.sha256(b'Alice').hexdigest()[:10]}"
"""Who is called so does not get the home of Alice."""
TAINT = {"key": "gpu", "value": "a100", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "open_"),
    [
        ({"key": "gpu", "value": "a100"}, True),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "value": "a100", "effect": "NoExecute"}, False),
        ({"key": "gpu", "value": "h100"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_taints_and_tolerations_match_as_in_kubernetes(toleration: dict[str, str], open_: bool) -> None:
    node = kept_node({"metadata": {"name": "n"}, "spec": {"taints": [TAINT]}})
    assert (closed(node, [toleration]) == "") is open_
    assert "gpu=a100:NoSchedule" in closed(node, [])


def _node(name: str, **labels: str) -> dict[str, object]:
    ready = [{"type": "Ready", "status": "True"}]
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "2"}
    status = {"allocatable": amounts, "conditions": ready}
    return kept_node({"metadata": {"name": name, "labels": labels}, "status": status})


def test_pools_are_chosen_by_labels_of_nodes() -> None:
    options = KubernetesOptions.model_validate(
        {"node_selector": {"for": "us"}, "pools": [{"name": "big", "node_labels": {"size": "big"}}]}
    )
    nodes = {
        "a": _node("a", size="big", **{"for": "us"}),
        "b": _node("b", **{"for": "us"}),
        "c": _node("c", size="big"),
    }
    assert [(node.name, node.pool) for node in offered(nodes, options, frozenset())] == [("a", "big"), ("b", None)]


def test_labels_that_nodes_cannot_set_are_not_left_out_for_others() -> None:
    many = {f"a{number:02}": "x" for number in range(60)}
    trusted = "node-restriction.kubernetes.io/governed"
    (told,) = offered({"n": _node("n", **many, **{trusted: "yes"})}, KubernetesOptions(), frozenset())
    assert told.labels[trusted] == "yes"


def _told(node: dict[str, object], *used: str) -> list[NodeHello]:
    return offered({"n": node}, KubernetesOptions(), used)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"cordoned": True}, "cordoned, so it takes no new pods: kubectl uncordon n"),
        ({"taints": [TAINT]}, "taint gpu=a100:NoSchedule, which the agent's tolerations do not name"),
        (
            {"taints": [{"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}]},
            "taint node.kubernetes.io/memory-pressure:NoSchedule",
        ),
        ({"ready": False, "not_ready": "Kubelet stopped posting node status."}, "not ready: Kubelet stopped posting"),
        ({"ready": False, "not_ready": "x" * 500}, "not ready: xxx"),
    ],
    ids=["cordoned", "taint", "pressure", "not ready", "long"],
)
def test_a_node_that_takes_no_pods_is_shown_closed_with_the_reason(change: dict[str, object], why: str) -> None:
    """It vanished from all lists, and people asked where it was."""
    (told,) = _told({**_node("n"), **change})
    assert told.note.startswith(why)
    assert len(told.note) <= 200
    assert [(slot.enabled, slot.note) for slot in told.slots] == [(False, told.note)] * 2
    assert (told.max_zero_slot_tasks, told.away) == (0, False)


def test_a_closed_node_with_tasks_keeps_them_and_gets_no_more_and_one_that_is_not_ready_is_away() -> None:
    (cordoned,) = _told({**_node("n"), "cordoned": True}, "n")
    assert not any(slot.enabled for slot in cordoned.slots)
    assert not cordoned.away
    (away,) = _told({**_node("n"), "ready": False, "not_ready": "gone"}, "n")
    assert (away.away, away.note, away.slots) == (True, "not ready: gone", [])


def test_machines_that_are_not_for_tasks_are_not_shown_and_closed_ones_leave_the_room_to_open_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("detlab_agent.runtimes.kubernetes.nodes.MOST_NODES", 1000)
    taint = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
    assert _told({**_node("n"), "taints": [taint]}) == []
    assert _told({**_node("n"), "cordoned": True, "allocatable": {"cpu": "8"}}) == []
    nodes = {f"n{number}": {**_node(f"n{number}"), "cordoned": number > 900} for number in range(1200)}
    told = offered(nodes, KubernetesOptions(), ())
    assert len(told) == 1000
    assert sum(not node.note for node in told) == 901


def test_devices_of_others_say_so() -> None:
    (told,) = offered({"n": _node("n")}, KubernetesOptions(), (), {"n": {"gpu1": "used by others on the cluster"}})
    assert [(slot.enabled, slot.note) for slot in told.slots] == [(True, ""), (False, "used by others on the cluster")]
    assert told.note == ""


def test_a_heartbeat_of_a_node_changes_nothing_of_what_is_kept() -> None:
    def node(number: str) -> dict[str, object]:
        condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": number}
        return {"metadata": {"name": "n", "resourceVersion": number}, "status": {"conditions": [condition]}}

    assert kept_node(node("1")) == kept_node(node("2"))


def _other(name: str, count: int = 1, **meta: object) -> dict[str, object]:
    container = {"resources": {"limits": {"nvidia.com/gpu": str(count), "cpu": "1"}}}
    return {"metadata": {"name": name, **meta}, "spec": {"nodeName": "n", "containers": [container]}}


def test_slots_whose_devices_others_have_stay_the_same_ones_and_are_never_those_of_tasks() -> None:
    async def check() -> None:
        # its reflector is made, and never started
        api = SimpleNamespace(path=lambda *words, **more: "/pods")
        others = OtherPods(api, Rules(KubernetesOptions(), "ours"), lambda: None)  # type: ignore[arg-type] # see above
        slots = TakenSlots(KubernetesOptions())

        def taken(busy: dict[str, set[str]]) -> dict[str, set[str]]:
            return slots.choose(others.amounts(), nodes, busy)

        nodes = {"n": _node("n")}
        others.pods.put(_other("theirs"))
        assert taken({}) == {"n": {"gpu1"}}
        assert taken({"n": {"gpu1"}}) == {"n": {"gpu0"}}
        assert taken({}) == {"n": {"gpu0"}}, "the same as before"
        others.pods.put(_other("theirs", namespace="other"))
        assert taken({}) == {"n": {"gpu0", "gpu1"}}, "names are those of a namespace"
        assert taken({"n": {"gpu0", "gpu1"}}) == {}

    asyncio.run(check())


def test_pods_of_ours_and_those_for_which_we_hold_slots_are_no_others() -> None:
    options = KubernetesOptions()
    assert kept_other(_other("p", 2), options, "me") == {"node": "n", "amounts": {"nvidia.com/gpu": 2}}
    assert kept_other(_other("p", labels={"detlab.io/agent": "me"}), options, "me") is None
    assert kept_other(_other("p", labels={"detlab.io/agent": "she"}), options, "me") is not None
    assert kept_other(_other("p", labels={"detlab.io/held": "true"}), options, "me") is None
    assert kept_other({**_other("p"), "status": {"phase": "Succeeded"}}, options, "me") is None
    assert kept_other({"metadata": {"name": "p"}, "spec": {"containers": [{}]}}, options, "me") is None
    first = _other("p", 1)
    first["spec"]["initContainers"] = _other("q", 3)["spec"]["containers"]  # type: ignore[index] # objects
    assert kept_other(first, options, "me") == {"node": "n", "amounts": {"nvidia.com/gpu": 3}}


@pytest.mark.parametrize(
    "names", [("alice", "Alice", "al-ice", "ali.ce", "alice-"), ("a" * 60, "a" * 61, "ü", "ö", ""), ("Alice", DIGESTED)]
)
def test_each_user_has_a_home_of_their_own(names: tuple[str, ...]) -> None:
    home = Home(size="1Gi", sub_path="homes/{user}")
    found = [claim_name(home, name) for name in names]
    assert len(set(found)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", one) for one in found)
    paths = [mounted(home, name)[1]["subPath"] for name in names]
    assert len(set(paths)) == len(names)
    assert all("/" not in path.removeprefix("homes/") and ".." not in path for path in paths)


def test_claims_are_made_only_where_the_operator_gives_a_size() -> None:
    made = claim(Home(size="10Gi", storage_class="fast"), "alice", {})
    assert made is not None
    assert made["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "10Gi"}},
        "storageClassName": "fast",
    }
    assert claim(Home(), "alice", {}) is None


GROUP = {"name": "a100", "node_labels": {"pool": "a100"}, "slots": 2, "most": 2, "memory": "64Gi", "cpus": 8}


def test_a_node_to_come_is_offered_until_as_many_are_there_as_there_may_be() -> None:
    options = KubernetesOptions.model_validate({"autoscaled": [GROUP]})
    first, second = "a100-to-come-1", "a100-to-come-2"

    def names(there: dict[str, dict[str, object]], *placed: PlacedPod) -> list[str]:
        return sorted(nodes_to_come(options, there, placed))

    waits = PlacedPod(first, ("gpu0",))
    real = {"n1": _node("n1", pool="a100")}
    assert names({}) == [first, second]
    assert names({}, waits) == [first, second]
    assert names(real, waits) == [first], "the new node is there, and its pod is not on it yet"
    came = PlacedPod(first, ("gpu0",), "n1")
    assert names(real, came) == [first, second]
    assert names({**real, "n2": _node("n2", pool="a100")}, came) == [first], "its task is there as long as it runs"
    assert names({"other": _node("other")}) == [first, second]


def test_what_is_left_of_a_node_that_has_come_is_offered_once() -> None:
    options = KubernetesOptions.model_validate({"autoscaled": [GROUP]})
    real, came = {"n1": _node("n1", pool="a100")}, [PlacedPod("a100-to-come-1", ("gpu0",), "n1")]
    to_come = nodes_to_come(options, real, came)
    assert come_already(came, to_come, options) == {"a100-to-come-1": {"gpu1": "listed under node n1"}}
    amounts: dict[str, Counter[str]] = {}
    count_elsewhere(came, real, options, amounts)
    assert TakenSlots(options).choose(amounts, real, {}) == {"n1": {"gpu1"}}
    assert by_whom({"gpu1"}, "n1", came) == {"gpu1": "used by a task that is listed under a100-to-come-1"}
    assert by_whom({"gpu0", "gpu1"}, "n1", came)["gpu0"] == "used by others on the cluster"
    (told,) = [one for one in offered(to_come, options, {"a100-to-come-1"}) if one.name == "a100-to-come-1"]
    assert (len(told.slots), told.cpus, told.memory, told.max_zero_slot_tasks) == (2, 8.0, 64 << 30, 0)
    assert told.note.startswith("not there yet: the autoscaler adds it")


def _pod(reason: str = "", why: str = "", **terminated: object) -> dict[str, object]:
    states = [{"name": "determined-container", "state": {"terminated": terminated}}] if terminated else []
    status = {"phase": "Failed", "reason": reason, "message": why, "containerStatuses": states}
    return kept_pod({"metadata": {"name": "det-1"}, "status": status})


_GATED = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "blocked"}]
_UNSCHEDULABLE = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}]


@pytest.mark.parametrize(
    ("spec", "status", "limit", "said"),
    [
        ({"schedulerName": "volcano"}, {"phase": "Pending"}, "place", "is the scheduler 'volcano' .schedulerName."),
        ({}, {}, "place", "is the scheduler 'default-scheduler'"),
        ({}, {"conditions": _UNSCHEDULABLE}, "place", "Unschedulable: no room"),
        ({"schedulingGates": [{"name": "example.com/mine"}]}, {}, "place", "gates example.com/mine"),
        ({"schedulingGates": [{"name": "example.com/mine"}]}, {"conditions": _GATED}, "place", "blocked"),
        ({"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}, {"conditions": _GATED}, "gate", "blocked"),
        ({"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}, {}, "gate", "kueue.x-k8s.io/admission"),
        (
            {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}, {"name": "example.com/mine"}]},
            {"conditions": _GATED},
            "place",
            "blocked",
        ),
    ],
)
def test_every_pod_without_a_node_has_a_limit_but_those_in_kueues_queue(
    spec: dict[str, object], status: dict[str, object], limit: str, said: str
) -> None:
    waits = waiting_for(kept_pod({"metadata": {"name": "det-1"}, "spec": spec, "status": status}))
    assert waits is not None
    assert (waits.limit, waits.stage) == (limit, "queued")
    assert re.search(said, waits.message)


def test_a_pod_with_a_node_waits_for_it() -> None:
    pod = {"metadata": {"name": "det-1"}, "spec": {"nodeName": "n1", "schedulerName": "volcano"}, "status": {}}
    assert waiting_for(kept_pod(pod)) is None


def test_a_pod_whose_containers_are_not_made_has_a_limit_of_its_own() -> None:
    """It was "starting" for ever, and kept its slots: a volume or network that its node cannot have."""

    def waits(reason: str) -> str:
        states = [{"name": MAIN_CONTAINER, "state": {"waiting": {"reason": reason}}}]
        status = {"phase": "Pending", "containerStatuses": states}
        pod = {"metadata": {"name": "det-1"}, "spec": {"nodeName": "n1"}, "status": status}
        found = waiting_for(kept_pod(pod))
        assert found is not None
        assert found.stage == "starting"
        return found.limit

    assert waits("ContainerCreating") == "creating"
    assert waits("PodInitializing") == "", "an init container of the config may take its time"


def test_a_node_that_does_not_take_a_pod_after_all_has_refused_it() -> None:
    pod = _pod("OutOfnvidia.com/gpu", "Node didn't have enough resource")
    assert is_over(pod)
    exit_ = exit_of(pod, ours=False)
    assert exit_.reason == "refused"
    assert "OutOfnvidia.com/gpu" in exit_.message


def test_what_the_launcher_reports_counts_although_the_pod_was_told_to_end() -> None:
    pod = _pod(exitCode=0, message='{"exit_code": 0}')
    pod["metadata"]["deleted"] = True  # type: ignore[index] # an object
    assert exit_of(pod, ours=False).exit_code == 0
    ended = _pod(exitCode=3, message='{"exit_code": 3}')
    assert exit_of(ended, ours=False).exit_code == 3
    ended["metadata"]["deleted"] = True  # type: ignore[index] # an object
    assert exit_of(ended, ours=False).reason == "machine_restarted"
    assert exit_of(ended, ours=True).exit_code == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gang: kueue", "needs kueue_queue"),
        ("home: {claim: homes}", "homes are private"),
        ("home: {sub_path: '../{user}'}", "home.sub_path"),
        ("allow_secrets: ['*']", "secrets of all tasks"),
        ("imgae: x", "imgae: Extra inputs"),
        ("- a", "must be a mapping"),
        ("{", "kubernetes-settings"),
    ],
)
def test_wrong_settings_are_named(tmp_path, text: str, said: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    with pytest.raises(AgentError, match="(?s)" + said):
        read_options(file)
