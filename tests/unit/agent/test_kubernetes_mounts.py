"""What of a node a pod may mount: directories that the operator has named, and what is in them by a subPath."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_agent_containers import CPU, order

from detlab.schemas import wire
from detlab_agent.runtimes.base import SetupFailed
from detlab_agent.runtimes.kubernetes.options import KubernetesOptions
from detlab_agent.runtimes.kubernetes.pods import Rules, pod
from detlab_agent.runtimes.kubernetes.userspecs import check_host_path, checked

NODE = {"name": "node-1", "labels": {}, "taints": [], "cordoned": False, "allocatable": {"cpu": "4"}}
ALLOWED = (Path("/data"), Path("/data/sets"), Path("/scratch/"))
RULES = Rules(KubernetesOptions(image="lab:1"), "kubernetes", allow_mounts=ALLOWED, restricted=False)


def made(tmp_path: Path, host: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the host volumes of a pod with a bind mount, and their mounts."""
    wanted = order(tmp_path, CPU)
    mount = wire.Mount(host_path=host, container_path="/in", read_only=True)
    wanted.launch.container = wire.ContainerSpec(image="i", mounts=[mount])
    spec = pod(wanted, "det-1", NODE, RULES)["spec"]
    volumes = [one for one in spec["volumes"] if "hostPath" in one]
    names = {one["name"] for one in volumes}
    return volumes, [one for one in spec["containers"][0]["volumeMounts"] if one["name"] in names]


@pytest.mark.parametrize(
    ("host", "root", "inside"),
    [
        ("/data", "/data", None),
        ("/data/", "/data", None),
        ("/data/ada/set", "/data", "ada/set"),
        ("/data//ada/./set/", "/data", "ada/set"),
        ("/data/sets/x", "/data/sets", "x"),
        ("/scratch/x", "/scratch", "x"),
    ],
)
def test_the_node_looks_up_nothing_but_what_the_operator_named(
    tmp_path: Path, host: str, root: str, inside: str | None
) -> None:
    """`/data/x` with `x -> /` was a hostPath, which the kubelet followed as root."""
    ((volume,), (mount,)) = made(tmp_path, host)
    assert volume["hostPath"] == {"path": root, "type": "Directory"}
    assert (mount["mountPath"], mount["readOnly"], mount.get("subPath")) == ("/in", True, inside)


@pytest.mark.parametrize(
    "host",
    ["/data-evil", "/data-evil/x", "/datax", "/", "/etc", "data", "", "/data/../etc", "/data/sets/../../etc", "//data"],
)
def test_nothing_else_is_mounted(tmp_path: Path, host: str) -> None:
    with pytest.raises(SetupFailed, match="bind_mounts: "):
        made(tmp_path, host)
    with pytest.raises(SetupFailed):
        check_host_path(host, RULES, "here")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"path": "/data/x"}, r"name /data as hostPath.path and x as subPath of its volumeMounts, or use bind_mounts"),
        ({"path": "/data", "type": "DirectoryOrCreate"}, r"hostPath.type can only be Directory"),
        ({"path": "/data", "type": "Socket"}, r"hostPath.type can only be Directory"),
        ({"path": "/data-evil"}, r"does not allow mounts of /data-evil"),
        ({"path": "/data/../etc"}, r"is not an absolute path"),
    ],
)
def test_a_volume_of_a_pod_spec_is_such_a_directory_itself(tmp_path: Path, source: dict[str, str], said: str) -> None:
    wanted = order(tmp_path, CPU)
    spec = {"volumes": [{"name": "v", "hostPath": source}]}
    wanted.launch.info.config["environment"] = {"pod_spec": {"spec": spec}}
    with pytest.raises(SetupFailed, match=said):
        checked(wanted, RULES)
