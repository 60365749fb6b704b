"""What the agent of a Kubernetes cluster makes of objects, and objects of what it is told; no cluster."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace

import pytest

from detlab_agent.runtimes.kubernetes.endings import exit_of, is_over, kept_pod
from detlab_agent.runtimes.kubernetes.nodes import closed, kept_node, offered, quantity
from detlab_agent.runtimes.kubernetes.options import Options, read_options
from detlab_agent.runtimes.kubernetes.others import Others, kept_other
from detlab_agent.runtimes.kubernetes.pods import Rules, label_value, pod_name
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
    options = Options.model_validate(
        {"node_selector": {"for": "us"}, "pools": [{"name": "big", "node_labels": {"size": "big"}}]}
    )
    nodes = {
        "a": _node("a", size="big", **{"for": "us"}),
        "b": _node("b", **{"for": "us"}),
        "c": _node("c", size="big"),
    }
    assert [(node.name, node.pool) for node in offered(nodes, options, frozenset())] == [("a", "big"), ("b", None)]


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
        others = Others(api, Rules(Options(), "ours"), lambda: None)  # type: ignore[arg-type] # see above
        nodes = {"n": _node("n")}
        others.pods.put(_other("theirs"))
        assert others.taken(nodes, {}) == {"n": {"gpu1"}}
        assert others.taken(nodes, {"n": {"gpu1"}}) == {"n": {"gpu0"}}
        assert others.taken(nodes, {}) == {"n": {"gpu0"}}, "the same as before"
        others.pods.put(_other("theirs", namespace="other"))
        assert others.taken(nodes, {}) == {"n": {"gpu0", "gpu1"}}, "names are those of a namespace"
        assert others.taken(nodes, {"n": {"gpu0", "gpu1"}}) == {}

    asyncio.run(check())


def test_pods_of_ours_and_those_for_which_we_hold_slots_are_no_others() -> None:
    options = Options()
    assert kept_other(_other("p", 2), options, "me") == {"node": "n", "amounts": {"nvidia.com/gpu": 2}}
    assert kept_other(_other("p", labels={"detlab.io/agent": "me"}), options, "me") is None
    assert kept_other(_other("p", labels={"detlab.io/agent": "she"}), options, "me") is not None
    assert kept_other(_other("p", labels={"detlab.io/held": "true"}), options, "me") is None
    assert kept_other({**_other("p"), "status": {"phase": "Succeeded"}}, options, "me") is None
    assert kept_other({"metadata": {"name": "p"}, "spec": {"containers": [{}]}}, options, "me") is None
    first = _other("p", 1)
    first["spec"]["initContainers"] = _other("q", 3)["spec"]["containers"]  # type: ignore[index] # objects
    assert kept_other(first, options, "me") == {"node": "n", "amounts": {"nvidia.com/gpu": 3}}


def _pod(reason: str = "", why: str = "", **terminated: object) -> dict[str, object]:
    states = [{"name": "determined-container", "state": {"terminated": terminated}}] if terminated else []
    status = {"phase": "Failed", "reason": reason, "message": why, "containerStatuses": states}
    return kept_pod({"metadata": {"name": "det-1"}, "status": status})


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
