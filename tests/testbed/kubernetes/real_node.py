"""One real node of a real control plane, `real-1`: containerd, a network, and a kubelet with two GPUs that are none.

    with control_plane() as plane, real_node(plane) as node:
        ...                                    # images: `testbed.kubernetes.images`, with imagePullPolicy: Never

It needs root. Containers see this machine's /usr and this tree, read-only, so that no image has to be built. Pods have
addresses on a bridge of the cluster's own, from which they reach this machine and each other, and nothing else; names
of headless services and of pods are answered by `dns.py`. No rule of any firewall is made, and no setting of the
kernel: the node sees files in their place.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from testbed.kubernetes import images
from testbed.kubernetes.api_client import Answer
from testbed.kubernetes.control_plane import CannotRun, ControlPlane, Part, bridge_of, ip, number_of, program, wait

_CGROUPS = Path("/sys/fs/cgroup")
_OWN = tuple(Path(name) for name in ("/var/lib/kubelet", "/var/lib/cni", "/var/log/pods", "/var/log/containers"))
"""Where a kubelet and CNI write whatever their options say: the node has folders of its own there."""
_SETTINGS = (
    *("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops"),
    *("kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "net/ipv4/ip_forward"),
)
"""What a kubelet sets when it starts, and, the last, a bridge of CNI: our pods need no forwarding."""
_RUNC = """#!{python} -IS
import json, os, sys

LAST = {last}
if "--bundle" in sys.argv:
    name = os.path.join(sys.argv[sys.argv.index("--bundle") + 1], "config.json")
    with open(name) as file:
        spec = json.load(file)
    spec["mounts"].sort(key=lambda mount: mount["destination"] in LAST)
    with open(name, "w") as file:
        json.dump(spec, file)
os.execv({runc!r}, [{runc!r}, *sys.argv[1:]])
"""
"""A runc that makes some mounts of a container last, so that no volume of its pod hides them."""


def own_settings(directory: Path) -> str:
    """Return the commands, for a shell in a mount namespace, by which settings of the kernel become files of a folder.

    Whoever sees them there reads what the machine has, and changes nothing of it, however the test run ends.

    Args:
        directory: Where the files are to be; it is made.
    """
    lines = []
    for name in _SETTINGS:
        real, own = Path("/proc/sys") / name, directory / name
        if real.exists():
            lines.append(f"mkdir -p {own.parent} && cat {real} > {own} && mount --bind {own} {real}")
    return " && ".join(lines) or "true"


def in_this_order(last: list[str], runc: str) -> str:
    """Return a program that is a runc which makes these mounts of each container last."""
    return _RUNC.format(python=os.path.realpath(sys.executable), last=last, runc=runc)


class RealNode:
    """A node; its files are in the folder of the control plane.

    Args:
        plane: The control plane.
        number: Its name is `real-NUMBER`; the first has the address of the control plane, others those after it.
    """

    def __init__(self, plane: ControlPlane, number: int = 1) -> None:
        self.plane, self.number, self.name = plane, number, f"real-{number}"
        self.address = f"{plane.address.rpartition('.')[0]}.{number}"
        self.directory = plane.directory / f"node-{number}"
        self.socket = self.directory / "containerd.sock"
        self.bridge = f"{bridge_of(plane.directory)}p"
        self.pods = f"10.215.{number_of(plane.address)}"
        """The first three numbers of the addresses of pods, on all nodes."""
        self.cgroup = f"/detlab-{bridge_of(plane.directory)}-{number}"
        self.view = Part(self.directory, "view")
        """Holds what the node sees mounted: with the last process in it, all mounts of pods are gone."""
        self.containerd = Part(self.directory, "containerd")
        self.kubelet = Part(self.directory, "kubelet")

    # --- life ---------------------------------------------------------------------------------------------

    def start(self, gpus: int = 2) -> None:
        """Start it, and wait until pods may come.

        Raises:
            CannotRun: Something is missing, or does not start.
        """
        self.directory.mkdir(exist_ok=True)
        if self.number > 1:
            ip("addr", "replace", f"{self.address}/32", "dev", bridge_of(self.plane.directory))
        self._write_files()
        self._open_view()
        self.start_containerd()
        for name, archive in images.archives(Path(program("pause"))).items():
            self.add_image(name, archive)
        self.start_kubelet()
        self._offer(gpus)

    def _open_view(self) -> None:
        own = [*_OWN, Path("/run/netns")]
        for folder in own:
            folder.mkdir(parents=True, exist_ok=True)
        mounts = " && ".join(f"mount -t tmpfs none {folder}" for folder in own)
        settings, seen = own_settings(self.directory / "settings"), self.directory / "seen"
        script = f"{mounts} && {settings} && touch {seen} && exec sleep 2147483647"
        seen.unlink(missing_ok=True)
        self.view.start(["unshare", "--mount", "--propagation", "slave", "sh", "-c", script])
        wait(seen.exists, [self.view], "mounts of the node's own", 30)

    def _inside(self, *command: str) -> list[str]:
        return ["nsenter", f"--mount=/proc/{self.view.pid}/ns/mnt", *command]

    def start_containerd(self) -> None:
        """Start what runs containers."""
        self.containerd.start(self._inside(program("containerd"), "--config", str(self.directory / "containerd.toml")))
        wait(lambda: self._ctr("version", check=False) is not None, [self.containerd], "containerd", 30)

    def start_kubelet(self) -> None:
        """Start the kubelet, and wait until the node is ready."""
        plane = self.plane
        self.kubelet.start(
            self._inside(
                *(program("kubelet"), "--config", str(self.directory / "kubelet.json")),
                *("--kubeconfig", str(plane.certified(f"kubelet-{self.number}")), "--hostname-override", self.name),
                *("--node-ip", self.address, "--root-dir", str(self.directory / "kubelet")),
                *("--container-runtime", "remote", "--container-runtime-endpoint", f"unix://{self.socket}"),
                *("--cert-dir", str(self.directory / "pki"), "--node-labels", "detlab.io/real=yes"),
            ),
            {"PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"},
        )
        wait(self.ready, [self.kubelet, self.containerd], "the node is ready")

    def ready(self) -> bool:
        """Whether pods may come."""
        try:
            with self.plane.admin as admin:
                node = admin.get(f"/api/v1/nodes/{self.name}")
        except Answer:
            return False
        ready = any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"].get("conditions", []))
        return ready and not node["spec"].get("taints")

    def _offer(self, gpus: int) -> None:
        """Let the node say that it has GPUs; its containers get none."""
        add = {"op": "add", "path": "/status/capacity/nvidia.com~1gpu", "value": str(gpus)}
        until = time.monotonic() + 60
        with self.plane.admin as admin:
            while "nvidia.com/gpu" not in admin.get(f"/api/v1/nodes/{self.name}")["status"]["allocatable"]:
                if time.monotonic() > until:
                    raise CannotRun("the kubelet does not offer the GPUs")
                admin.patch(f"/api/v1/nodes/{self.name}/status", [add], "json")
                time.sleep(0.3)

    def add_image(self, name: str, archive: bytes) -> None:
        """Put an image onto the node."""
        if self._ctr("-n", "k8s.io", "images", "import", "-", given=archive) is None:
            raise CannotRun(f"image {name} is not taken")

    def _ctr(self, *words: str, given: bytes = b"", check: bool = True) -> str | None:
        command = [program("ctr"), "-a", str(self.socket), "--connect-timeout", "1s", *words]
        done = subprocess.run(command, input=given, capture_output=True, check=False, timeout=60)
        if done.returncode != 0:
            if check:
                raise CannotRun(f"ctr {' '.join(words)}: {done.stderr.decode(errors='replace')}")
            return None
        return done.stdout.decode(errors="replace")

    def _write_files(self) -> None:
        where = self.directory
        (where / "cni").mkdir(exist_ok=True)
        network = {
            "cniVersion": "0.4.0",
            "name": "detlab-test",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": self.bridge,
                    "isGateway": True,
                    "ipMasq": False,
                    "hairpinMode": True,
                    "ipam": {
                        "type": "host-local",
                        "ranges": [[self._range()]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                        "dataDir": str(where / "ipam"),
                    },
                }
            ],
        }
        (where / "cni/10-bridge.conflist").write_text(json.dumps(network), encoding="ascii")
        (where / "base.json").write_text(json.dumps(self._base_spec()), encoding="ascii")
        (where / "containerd.toml").write_text(self._containerd_config(self._runc()), encoding="ascii")
        (where / "kubelet.json").write_text(json.dumps(self._kubelet_config()), encoding="ascii")
        (where / "resolv.conf").write_text(f"nameserver {self.plane.address}\n", encoding="ascii")
        for controller in self._controllers():
            (controller / self.cgroup.lstrip("/")).mkdir(exist_ok=True)

    def _runc(self) -> str:
        """Return what starts containers. Pods of the chart have a /tmp of their own, which may hide this tree."""
        last = [str(path) for path in images.shown() if path.is_relative_to("/tmp")]
        if not last:
            return program("runc")
        path = self.directory / "runc"
        path.write_text(in_this_order(last, program("runc")), encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    def _range(self) -> dict[str, str]:
        """Return the addresses of this node's pods; all are on one bridge."""
        first = 100 * (self.number - 1)
        return {
            "subnet": f"{self.pods}.0/24",
            "rangeStart": f"{self.pods}.{first + 2}",
            "rangeEnd": f"{self.pods}.{first + 99}",
            "gateway": f"{self.pods}.1",
        }

    def _base_spec(self) -> dict[str, object]:
        """Return the specification from which every container begins: this machine's programs are in it."""
        done = subprocess.run([program("ctr"), "oci", "spec"], capture_output=True, check=True)
        spec: dict[str, object] = json.loads(done.stdout)
        mounts = spec["mounts"]
        assert isinstance(mounts, list)
        options = ["rbind", "ro"]
        mounts += [
            {"destination": str(path), "type": "bind", "source": str(path), "options": options}
            for path in images.shown()
        ]
        return spec

    def _containerd_config(self, runc: str) -> str:
        # No CAP_SYS_RESOURCE in most containers of CI: what would lower an OOM score is left out.
        return f"""
version = 2
root = "{self.directory}/containerd"
state = "{self.directory}/state"
oom_score = 0
[grpc]
  address = "{self.socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{images.PAUSE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{self.directory}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      base_runtime_spec = "{self.directory}/base.json"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "{runc}"
"""

    def _kubelet_config(self) -> dict[str, object]:
        plane, pki = self.plane, self.plane.directory / "pki"
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "port": plane.ports["kubelet"],
            "readOnlyPort": 0,
            "healthzPort": 0,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": f"{pki}/ca.crt"},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "tlsCertFile": f"{pki}/kubelet-{self.number}.crt",
            "tlsPrivateKeyFile": f"{pki}/kubelet-{self.number}.key",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self.cgroup,
            "failSwapOn": False,
            "oomScoreAdj": 0,
            "maxOpenFiles": 20000,
            "makeIPTablesUtilChains": False,
            "clusterDNS": [plane.address],
            "clusterDomain": "cluster.local",
            "resolvConf": str(self.directory / "resolv.conf"),
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
            "syncFrequency": "1s",
            "nodeStatusUpdateFrequency": "5s",
            "kubeAPIQPS": 50,
            "kubeAPIBurst": 100,
        }

    # --- its end ------------------------------------------------------------------------------------------

    @staticmethod
    def _controllers() -> list[Path]:
        if (_CGROUPS / "cgroup.controllers").exists():
            return [_CGROUPS]
        return sorted({path.parent.resolve() for path in _CGROUPS.glob("*/cgroup.procs")} - {_CGROUPS / "unified"})

    def stop(self) -> None:
        """End pods and programs, and leave nothing of them: no process, mount, link or control group."""
        self.kubelet.end()
        if self.containerd.pid is not None:
            for kind, words in (("task", ("rm", "-f")), ("container", ("rm",))):
                for name in (self._ctr("-n", "k8s.io", kind, "ls", "-q", check=False) or "").split():
                    self._ctr("-n", "k8s.io", kind, *words, name, check=False)
        self.containerd.end()
        self._end_shims()
        self.view.end(signal.SIGKILL)
        if self.number == 1:
            ip("link", "del", self.bridge, check=False)
        else:
            ip("addr", "del", f"{self.address}/32", "dev", bridge_of(self.plane.directory), check=False)
        for controller in _CGROUPS.iterdir():
            _remove_groups(controller / self.cgroup.lstrip("/"))
        _remove_groups(_CGROUPS / self.cgroup.lstrip("/"))
        for folder in reversed(_OWN):
            with suppress(OSError):
                folder.rmdir()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _end_shims(self) -> None:
        """End what outlives containerd: the parents of containers, whose address is in its folder."""
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if str(self.socket) in (path / "cmdline").read_text(errors="replace"):
                    os.kill(int(path.name), 9)


def _remove_groups(group: Path) -> None:
    if not group.is_dir():
        return
    for path, _, _ in os.walk(group, topdown=False):
        for _ in range(50):
            with suppress(OSError):
                Path(path).rmdir()
                break
            with suppress(OSError):
                for pid in (Path(path) / "cgroup.procs").read_text().split():
                    os.kill(int(pid), 9)
            time.sleep(0.02)


@contextmanager
def real_node(plane: ControlPlane, gpus: int = 2, *, number: int = 1, keep: bool = False) -> Iterator[RealNode]:
    """A node of a control plane, and its end, unless it is to be kept.

    Raises:
        CannotRun: Not root, or something is missing.
    """
    if os.geteuid() != 0:
        raise CannotRun("needs root: a node of Kubernetes")
    for name in ("containerd", "ctr", "runc", "kubelet", "pause", "conntrack", "socat"):
        program(name)
    node = RealNode(plane, number)
    try:
        if node.kubelet.pid is None or not node.ready():
            node.start(gpus)
        yield node
    finally:
        if not keep:
            node.stop()
