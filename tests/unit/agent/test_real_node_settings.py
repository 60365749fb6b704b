"""What a real node of Kubernetes sets of its machine, the machine that runs the tests does not get."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from testbed.kubernetes.real_node import in_this_order, own_settings

KUBELETS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""What a kubelet writes (setupKernelTunables in its container manager); its CNI writes the one below."""
WRITTEN = {**KUBELETS, "net/ipv4/ip_forward": "1"}


def present() -> dict[str, str]:
    return {name: (Path("/proc/sys") / name).read_text().strip() for name in WRITTEN}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a mount namespace without one of users")
def test_a_node_that_sets_the_kernel_sets_files_of_its_own(tmp_path: Path) -> None:
    before = present()
    other = {name: str(int(value) + 1) for name, value in before.items()}
    writes = "; ".join(f"echo {value} > /proc/sys/{name}" for name, value in other.items())
    reads = " ".join(f"/proc/sys/{name}" for name in WRITTEN)
    # each is read before and after; a view that ends by SIGKILL, as after a crash, leaves nothing to be put back
    script = f"{own_settings(tmp_path)} && cat {reads} && {{ {writes}; cat {reads}; kill -9 $$; }}"
    command = ["unshare", "--mount", "--propagation", "slave", "sh", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode == -9
    assert done.stdout.split() == [*before.values(), *other.values()]
    assert present() == before
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


def test_a_pod_s_own_tmp_does_not_hide_a_checkout_below_tmp(tmp_path: Path) -> None:
    """`make test-kubernetes` in a folder below /tmp: pods of the chart found no Python."""
    destinations = ["/proc", "/usr", "/tmp/checkout", "/etc/hosts", "/tmp"]
    bundle = {"mounts": [{"destination": one} for one in destinations], "root": {"path": "rootfs"}}
    (tmp_path / "config.json").write_text(json.dumps(bundle))
    runc = tmp_path / "runc"
    runc.write_text(in_this_order(["/tmp/checkout"], "/bin/echo"))
    runc.chmod(0o755)
    done = subprocess.run([runc, "create", "--bundle", tmp_path, "id"], capture_output=True, text=True, check=True)
    assert done.stdout == f"create --bundle {tmp_path} id\n"
    found = json.loads((tmp_path / "config.json").read_text())
    assert [mount["destination"] for mount in found["mounts"]] == [
        "/proc",
        "/usr",
        "/etc/hosts",
        "/tmp",
        "/tmp/checkout",
    ]
    assert found["root"] == bundle["root"]
