"""A throwaway control plane of the real Kubernetes: etcd, API server, controller manager and scheduler, in a folder.

As a module: `with control_plane() as plane: plane.admin.get("/api/v1/nodes")`. From the shell:

    python tests/testbed/kubernetes/control_plane.py up DIRECTORY      # start (or find) it, print KUBECONFIG
    python tests/testbed/kubernetes/control_plane.py down DIRECTORY    # end all of it, remove the folder

The programs come from `build.sh`. Ports are free ones of the loopback and of a bridge with an address of its own, which
a node of `real_node.py` needs; without root there is no bridge and no real node, but fake ones (`fake_nodes.py`) do.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from detlab.testing.ports import free_ports

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from testbed.kubernetes.api_client import Answer, ApiClient

PREFIX = "detlab-kubernetes-"
VERSION = "1.20.2"
PARTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
SECONDS = 90.0
"""How long a start may take, on a machine that does much else."""
ADMIN_TOKEN = "admin-of-the-test-cluster"
SERVICES = "10.214.240.0/20"
"""Addresses of services."""
NODES = (1, 2)
"""Numbers that real nodes may have."""
_children: dict[int, subprocess.Popen[bytes]] = {}


class CannotRun(Exception):
    """The cluster cannot run here; the message says why."""


def programs() -> Path:
    """Return where `build.sh` leaves the programs."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("DETLAB_KUBERNETES_BIN") or cache / f"detlab/kubernetes-{VERSION}/bin")


def program(name: str) -> str:
    """Return the path of a program.

    Raises:
        CannotRun: It is not there.
    """
    built = programs() / name
    found = str(built) if built.exists() else shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        raise CannotRun(f"{name} is not here: make test-kubernetes builds and installs what is missing")
    return found


@dataclass
class Part:
    """One program of a cluster, known by its pid file, so that another process can end it."""

    directory: Path
    name: str

    @property
    def pid(self) -> int | None:
        """Its process; None if it does not run."""
        try:
            pid = int((self.directory / f"{self.name}.pid").read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None
        return pid if alive(pid) else None

    def start(self, command: Sequence[str], environment: dict[str, str] | None = None) -> None:
        """Start it, unless it runs."""
        if self.pid is not None:
            return
        with (self.directory / f"{self.name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,
            )
        _children[process.pid] = process
        (self.directory / f"{self.name}.pid").write_text(str(process.pid), encoding="ascii")

    def end(self, number: int = signal.SIGTERM, seconds: float = 15.0) -> None:
        """Signal it and wait; after that, kill it."""
        pid = self.pid
        if pid is None:
            return
        for which in (number, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, which)
            deadline = time.monotonic() + seconds
            while alive(pid) and time.monotonic() < deadline:
                time.sleep(0.02)
            if not alive(pid):
                return

    def last_words(self) -> str:
        """Return the end of its log."""
        with contextlib.suppress(OSError):
            return "\n".join((self.directory / f"{self.name}.log").read_text(errors="replace").splitlines()[-12:])
        return ""


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    if (child := _children.get(pid)) is not None:
        return child.poll() is None
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0] != "Z"
        )
    except OSError:
        return False


def wait(what: Callable[[], object], parts: Sequence[Part], said: str, seconds: float = SECONDS) -> None:
    """Wait until something is so.

    Raises:
        CannotRun: It did not come, or a part has ended; with the end of its log.
    """
    deadline = time.monotonic() + seconds
    while not what():
        dead = [part for part in parts if part.pid is None]
        if dead or time.monotonic() > deadline:
            logs = "\n".join(f"--- {part.name}\n{part.last_words()}" for part in dead or parts)
            raise CannotRun(f"{said}: not within {seconds:g} s\n{logs}")
        time.sleep(0.05)


@dataclass
class ControlPlane:
    """A control plane in a folder."""

    directory: Path
    address: str
    ports: dict[str, int] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Address of the API server."""
        return f"https://{self.address}:{self.ports['api']}"

    @property
    def authority(self) -> Path:
        """The certificate that has signed all others."""
        return self.directory / "pki/ca.crt"

    def part(self, name: str) -> Part:
        """Return one of its programs."""
        return Part(self.directory, name)

    def client(self, token: str = ADMIN_TOKEN) -> ApiClient:
        """Return a plain client."""
        return ApiClient(self.url, token, self.authority)

    @property
    def admin(self) -> ApiClient:
        """A client with all rights."""
        return self.client()

    def kubeconfig(
        self, token: str = ADMIN_TOKEN, namespace: str = "default", name: str = "admin", port: int | None = None
    ) -> Path:
        """Write a kubeconfig for a token, and return its path; `port`: of the way there, if it is not the server's."""
        url = self.url if port is None else f"https://{self.address}:{port}"
        value = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": url, "certificate-authority": str(self.authority)}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
            "current-context": "c",
        }
        path = self.directory / f"{name}.kubeconfig"
        path.write_text(json.dumps(value), encoding="utf-8")
        path.chmod(0o600)
        return path

    def certified(self, name: str) -> Path:
        """Write the kubeconfig of a part that shows a certificate."""
        user = {
            "client-certificate": str(self.directory / f"pki/{name}.crt"),
            "client-key": str(self.directory / f"pki/{name}.key"),
        }
        value = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": self.url, "certificate-authority": str(self.authority)}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        }
        path = self.directory / f"{name}.conf"
        path.write_text(json.dumps(value), encoding="utf-8")
        return path

    # --- life ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start what does not run, and wait until it answers.

        Raises:
            CannotRun: It does not; the message has the ends of the logs.
        """
        self.start_etcd()
        self.start_api()
        self._start_controllers()
        wait(self._settled, [self.part(name) for name in PARTS], "the default service account")

    def start_etcd(self) -> None:
        """Start the store."""
        client, peer = (f"http://127.0.0.1:{self.ports[name]}" for name in ("etcd", "peer"))
        self.part("etcd").start(
            [
                *(program("etcd"), "--data-dir", f"{self.directory}/etcd", "--unsafe-no-fsync"),
                *("--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer),
                *("--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"),
                *("--log-level", "warn", "--logger", "zap"),
            ]
        )

    def start_api(self) -> None:
        """Start the API server, and wait until it is ready."""
        pki = self.directory / "pki"
        self.part("kube-apiserver").start(
            [
                *(program("kube-apiserver"), "--etcd-servers", f"http://127.0.0.1:{self.ports['etcd']}"),
                *("--bind-address", self.address, "--advertise-address", self._advertised()),
                *("--secure-port", str(self.ports["api"]), "--insecure-port", "0"),
                *("--tls-cert-file", f"{pki}/apiserver.crt", "--tls-private-key-file", f"{pki}/apiserver.key"),
                *("--client-ca-file", f"{pki}/ca.crt", "--token-auth-file", f"{pki}/tokens.csv"),
                *("--authorization-mode", "Node,RBAC", "--service-account-key-file", f"{pki}/sa.pub"),
                *("--service-account-signing-key-file", f"{pki}/sa.key"),
                *("--service-account-issuer", "https://kubernetes.default.svc"),
                *("--service-cluster-ip-range", SERVICES, "--allow-privileged=true"),
                *("--kubelet-client-certificate", f"{pki}/admin.crt", "--kubelet-client-key", f"{pki}/admin.key"),
                *("--kubelet-certificate-authority", f"{pki}/ca.crt"),
                *("--kubelet-preferred-address-types", "InternalIP"),
            ]
        )
        wait(self.answers, [self.part("etcd"), self.part("kube-apiserver")], "the API server")

    def _advertised(self) -> str:
        # A loopback address is refused, and nobody asks for it where there is no real node.
        return self.address if not self.address.startswith("127.") else "10.214.0.1"

    def _start_controllers(self) -> None:
        pki = self.directory / "pki"
        for name, user in (("kube-controller-manager", "kcm"), ("kube-scheduler", "scheduler")):
            conf = str(self.certified(user))
            command = [
                *(program(name), "--kubeconfig", conf, "--leader-elect=false", "--bind-address", "127.0.0.1"),
                *("--port", "0", "--secure-port", str(self.ports[user])),
                *("--authentication-kubeconfig", conf, "--authorization-kubeconfig", conf),
                *("--authentication-tolerate-lookup-failure", "--cert-dir", f"{self.directory}/{user}"),
            ]
            if user == "kcm":
                command += ["--service-account-private-key-file", f"{pki}/sa.key", "--root-ca-file", f"{pki}/ca.crt"]
                command += ["--use-service-account-credentials", "--node-monitor-grace-period", "20s"]
                command += [
                    "--cluster-signing-cert-file",
                    f"{pki}/ca.crt",
                    "--cluster-signing-key-file",
                    f"{pki}/ca.key",
                ]
                command += ["--kube-api-qps", "300", "--kube-api-burst", "600"]
            else:
                command += ["--kube-api-qps", "300", "--kube-api-burst", "600"]
            self.part(name).start(command)

    def answers(self) -> bool:
        """Whether the API server is ready."""
        try:
            with self.admin as admin:
                return bool(admin.get("/readyz") == "ok")
        except Exception:  # it does not listen yet, or says that it is not ready: asked again
            return False

    def _settled(self) -> bool:
        try:
            with self.admin as admin:
                found = admin.get("/api/v1/namespaces/default/serviceaccounts/default")
                admin.get("/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical")
        except Answer:
            return False
        return bool(found.get("secrets"))

    def kill(self, name: str) -> None:
        """SIGKILL one of the programs."""
        self.part(name).end(signal.SIGKILL)

    def pause(self, name: str, *, on: bool = True) -> None:
        """Stop a program without ending it, as a disk that hangs does with etcd; or let it go on."""
        pid = self.part(name).pid
        if pid is not None:
            os.kill(pid, signal.SIGSTOP if on else signal.SIGCONT)

    def stop(self) -> None:
        """End all of it."""
        for name in reversed(PARTS):
            self.pause(name, on=False)
            self.part(name).end()


# --- certificates ---------------------------------------------------------------------------------------------


def _openssl(*words: str, folder: Path) -> None:
    done = subprocess.run([program("openssl"), *words], cwd=folder, capture_output=True, check=False)
    if done.returncode != 0:
        raise CannotRun(f"openssl {words[0]}: {done.stderr.decode(errors='replace')}")


def _of_node(addresses: Sequence[str], number: int) -> str:
    return f"DNS:real-{number},IP:{addresses[0].rpartition('.')[0]}.{number},IP:127.0.0.1"


def make_certificates(directory: Path, addresses: Sequence[str]) -> None:
    """Make an authority, and what each part shows."""
    pki = directory / "pki"
    pki.mkdir(mode=0o700)
    _openssl("ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", "ca.key", folder=pki)
    _openssl(
        "req", "-x509", "-new", "-key", "ca.key", "-subj", "/CN=test-ca", "-days", "3", "-out", "ca.crt", folder=pki
    )
    _openssl("genrsa", "-out", "sa.key", "2048", folder=pki)
    _openssl("rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub", folder=pki)
    here = ",".join(f"IP:{address}" for address in addresses)
    names = "DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
    for name, subject, alternatives in (
        ("apiserver", "/CN=kube-apiserver", f"{here},{names}"),
        ("admin", "/O=system:masters/CN=admin", "DNS:admin"),
        ("kcm", "/CN=system:kube-controller-manager", "DNS:kcm"),
        ("scheduler", "/CN=system:kube-scheduler", "DNS:scheduler"),
        *(
            (f"kubelet-{number}", f"/O=system:nodes/CN=system:node:real-{number}", _of_node(addresses, number))
            for number in NODES
        ),
    ):
        _openssl("ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", f"{name}.key", folder=pki)
        _openssl("req", "-new", "-key", f"{name}.key", "-subj", subject, "-out", f"{name}.csr", folder=pki)
        (pki / f"{name}.ext").write_text(f"subjectAltName={alternatives}\nextendedKeyUsage=serverAuth,clientAuth\n")
        words = ["x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"]
        _openssl(*words, "-days", "3", "-out", f"{name}.crt", "-extfile", f"{name}.ext", folder=pki)
    (pki / "tokens.csv").write_text(f"{ADMIN_TOKEN},admin,admin-uid,system:masters\n", encoding="ascii")


# --- a bridge for the address, since a node's may not be the loopback's -------------------------------------------


def ip(*words: str, check: bool = True) -> str:
    """Run `ip`."""
    done = subprocess.run([program("ip"), *words], capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise CannotRun(f"ip {' '.join(words)}: {done.stderr}")
    return done.stdout


def bridge_of(directory: Path) -> str:
    """Return the name of the bridge of a cluster."""
    return f"dlk{directory.stat().st_ino % 10**9}"


def number_of(address: str) -> int:
    """Return the third number of an address, by which the cluster's other networks are told apart."""
    return int(address.split(".")[2])


def _make_bridge(directory: Path) -> str:
    name = bridge_of(directory)
    if Path(f"/sys/class/net/{name}").exists():
        return (directory / "address").read_text(encoding="ascii")
    ip("link", "add", "name", name, "type", "bridge")
    taken = ip("-4", "addr", "show")
    number = next(n % 200 for n in range(os.getpid(), os.getpid() + 200) if f"10.214.{n % 200}.1/" not in taken)
    ip("addr", "add", f"10.214.{number}.1/32", "dev", name)
    ip("link", "set", name, "up")
    return f"10.214.{number}.1"


# --- from nothing, and back ---------------------------------------------------------------------------------------


def up(directory: Path | None = None) -> ControlPlane:
    """Return the running control plane of `directory` (default: a new one), starting it if need be.

    Raises:
        CannotRun: A program is missing, or it does not start.
    """
    for name in (*PARTS, "openssl"):
        program(name)
    if directory is None:
        directory = Path(tempfile.mkdtemp(prefix=PREFIX))
    directory = directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o711)
    if not (directory / "owner").exists():
        (directory / "owner").write_text(str(os.getpid()), encoding="ascii")
    address = _make_bridge(directory) if os.geteuid() == 0 else "127.0.0.1"
    (directory / "address").write_text(address, encoding="ascii")
    names = ("api", "etcd", "peer", "kcm", "scheduler", "kubelet")
    if (directory / "ports").exists():
        ports = json.loads((directory / "ports").read_text(encoding="ascii"))
    else:
        ports = dict(zip(names, free_ports(len(names), address), strict=True))
        (directory / "ports").write_text(json.dumps(ports), encoding="ascii")
        make_certificates(directory, [address, "127.0.0.1", "10.214.240.1"])
    plane = ControlPlane(directory, address, ports)
    plane.start()
    return plane


def down(directory: Path) -> None:
    """End a control plane and remove its folder and its bridge, whatever of it is still there."""
    directory = directory.absolute()
    if not directory.exists():
        return
    for number in reversed(NODES):
        if (directory / f"node-{number}").exists():
            from testbed.kubernetes.real_node import RealNode

            RealNode(ControlPlane(directory, (directory / "address").read_text(encoding="ascii")), number).stop()
    ControlPlane(directory, "").stop()
    if os.geteuid() == 0:
        ip("link", "del", bridge_of(directory), check=False)
    shutil.rmtree(directory, ignore_errors=True)


def abandoned() -> Iterator[Path]:
    """Yield the folders of clusters whose test run was killed."""
    for owner in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/owner"):
        pid = owner.read_text(encoding="ascii").strip()
        if owner.stat().st_uid == os.getuid() and pid.isdigit() and not Path(f"/proc/{pid}").exists():
            yield owner.parent


@contextmanager
def control_plane() -> Iterator[ControlPlane]:
    """A new control plane, and its end."""
    plane = up()
    try:
        yield plane
    finally:
        down(plane.directory)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["up", where]:
            try:
                found = up(Path(where))
            except CannotRun as error:
                sys.exit(f"cannot run here: {error}")
            print(f"export KUBECONFIG={found.kubeconfig()}")
        case ["down", where]:
            down(Path(where))
        case _:
            sys.exit(__doc__)
