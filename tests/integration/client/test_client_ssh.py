"""SSH to a shell: `det shell proxy` and what `show-ssh-command` prints, against the terminals of a real Jupyter server.

OpenSSH's server is not on every machine: in its place, most tests have a program that answers in capitals.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from detlab.cli.terminal import ssh
from detlab.launch.servers import ssh_stream
from detlab.short_folder import short_folder
from detlab.testing.ports import free_port
from testbed.waiting import until

CARRY = """
import sys
from detlab.cli.output.failures import show
from detlab.cli.terminal.ssh import carry, host_of
from detlab.client.transport.discovery import ClusterAddress

what, base, token = sys.argv[1:4]
address = ClusterAddress(f"{base}/services/detlab/", token, "the test")
try:
    if what == "carry":
        carry(address, f"{base}/user/ada/shell-1/")
    else:
        print(host_of(address, f"{base}/user/ada/shell-1/", "shell-1").user)
except Exception as error:
    sys.exit(show(error))
"""
SSHD = f"""#!{sys.executable}
import os, sys
config = open(sys.argv[sys.argv.index("-f") + 1]).read()
os.write(1, b"keys " + open(config.split("AuthorizedKeysFile ")[1].split("\\n")[0]).read().encode())
while data := os.read(0, 65536):
    if data == b"bye":
        sys.exit(0)
    os.write(1, data.upper())
"""
REAL = shutil.which("sshd") or shutil.which("sshd", path=os.pathsep.join(ssh_stream.PLACES))


class Server:
    """A Jupyter server where the Hub would have it, as a shell has it."""

    def __init__(self, root: Path, *, path: str) -> None:
        self.root = root
        self.base = f"http://127.0.0.1:{free_port()}"
        words = [
            "--ServerApp.base_url=/user/ada/shell-1/", f"--ServerApp.port={self.base.rpartition(':')[2]}",
            "--ServerApp.port_retries=0", "--IdentityProvider.token=a-token", "--no-browser", "--allow-root",
            f"--ServerApp.root_dir={root}",
            "--ServerApp.terminado_settings=shell_command=['/bin/bash', '--norc', '--noprofile']",
        ]  # fmt: skip
        self.environ = {**os.environ, "HOME": str(root), "PATH": path, "DET_TASK_ID": "shell-1", "QUOTED": 'a "b\\'}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jupyter_server", *words],
            env=self.environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def terminals(self) -> list[str] | None:
        """The names of its terminals; None while it does not answer."""
        try:
            found = httpx.get(
                f"{self.base}/user/ada/shell-1/api/terminals",
                headers={"Authorization": "token a-token"},
                trust_env=False,
            )
        except httpx.HTTPError:
            assert self.process.poll() is None
            return None
        return [item["name"] for item in found.raise_for_status().json()]

    def command(self, what: str) -> list[str]:
        """The command line of `det`, without the master."""
        return [sys.executable, "-c", CARRY, what, self.base, "a-token"]

    def run(self, what: str) -> "subprocess.CompletedProcess[str]":
        """Run it to its end."""
        return subprocess.run(
            self.command(what), env=self.environ, capture_output=True, text=True, timeout=60, check=False
        )


@contextmanager
def serving(root: Path, path: str) -> Iterator[Server]:
    found = Server(root, path=path)
    try:
        until(lambda: found.terminals() is not None, "the server does not answer", 60)
        yield found
    finally:
        found.process.kill()
        found.process.wait()


def ended(process: subprocess.Popen[bytes]) -> int | None:
    """Its exit status, once it has ended by itself."""
    try:
        return process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        return None


def programs(folder: Path, **texts: str) -> str:
    """Make programs; return a PATH with them, this Python and no OpenSSH server."""
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("ssh")
    with serving(root, programs(root / "bin", sshd=SSHD)) as found:
        yield found


def test_both_ends_agree_on_the_first_line() -> None:
    assert ssh.READY == ssh_stream.READY
    assert ssh_stream.__name__ in ssh.START


def test_the_command_and_the_block_name_the_same_host() -> None:
    host = ssh.SshHost(
        "shell-1", "ada", Path("/home/ada/a folder/100%/key"), "det -m 'http://hub:8642' shell proxy shell-1"
    )
    words = shlex.split(host.command(["-L", "6006:localhost:6006"]))
    assert (words[0], words[-3:]) == ("ssh", ["-L", "6006:localhost:6006", "shell-1"])
    given = subprocess.run(["ssh", "-G", *words[1:]], capture_output=True, text=True, check=True).stdout.splitlines()
    assert {"user ada", "identityfile /home/ada/a folder/100%%/key", "identitiesonly yes"} <= set(given)
    assert "proxycommand det -m 'http://hub:8642' shell proxy shell-1" in given
    first, *rest = host.block().splitlines()
    assert first == "Host shell-1"
    assert dict(line.split(maxsplit=1) for line in rest) == host.options()


def test_bytes_pass_unchanged_and_the_terminal_is_removed(server: Server) -> None:
    sent = bytes(range(256)) * 4096  # a megabyte: more than any buffer on the way
    with subprocess.Popen(
        server.command("carry"), env=server.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        line = process.stdout.readline()
        key = (server.root / ".config" / "detlab" / "ssh" / "id_ed25519.pub").read_bytes()
        assert line.removeprefix(b"keys ").split() == key.split()[:2]
        for at in range(0, len(sent), 65536):
            part = sent[at : at + 65536]
            process.stdin.write(part)
            process.stdin.flush()
            assert process.stdout.read(len(part)) == part.upper()
        assert server.terminals()
        process.stdin.write(b"bye")
        process.stdin.flush()
        assert ended(process) == 0
    until(lambda: server.terminals() == [], "the terminal stays", 30)


def test_ssh_that_ends_its_proxy_leaves_no_terminal(server: Server) -> None:
    with subprocess.Popen(
        server.command("carry"), env=server.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert server.terminals()
        process.terminate()
        assert ended(process) == 0
    until(lambda: server.terminals() == [], "the terminal stays", 30)


def test_a_machine_without_sshd_says_so(tmp_path: Path) -> None:
    if REAL is not None:
        pytest.skip("needs a machine without sshd")
    with serving(tmp_path, programs(tmp_path / "bin")) as server:
        result = server.run("look")
        assert result.returncode == 1
        assert "the shell cannot serve SSH: there is no sshd here; install openssh-server" in result.stderr
        assert "det shell open ID" in result.stderr
        until(lambda: server.terminals() == [], "the terminal stays", 30)


def test_a_hostile_shell_writes_no_line_into_a_configuration_of_ssh(tmp_path: Path) -> None:
    """Its image chose what answers: the name of an account is all that it may say."""
    said = '{"state": "ready", "user": "ada\\\\n  ProxyCommand evil"}'
    python = f"#!/bin/sh\nstty raw -echo\nprintf '%b\\n' '{ssh.READY}{said}'\nexec sleep 60\n"
    with serving(tmp_path, programs(tmp_path / "bin", python3=python)) as server:
        result = server.run("look")
    assert (result.returncode, result.stdout) == (1, "")
    assert "which cannot be the name of an account" in result.stderr


def test_the_account_is_told_and_the_key_made_once_and_private(server: Server) -> None:
    first = server.run("look")
    assert first.returncode == 0, first.stderr
    key = server.root / ".config" / "detlab" / "ssh" / "id_ed25519"
    before = key.read_bytes()
    assert (key.stat().st_mode & 0o77, key.parent.stat().st_mode & 0o77) == (0, 0)
    assert (server.run("look").stdout, key.read_bytes()) == (first.stdout, before)


def test_a_uid_without_an_account_is_shown_one() -> None:
    environ = {"HOME": "/home/ada", "SHELL": "/bin/bash"}
    first, *rest = ssh_stream.passwd_with("ada", environ, "root:x:0:0::/root:/bin/sh\n").splitlines()
    assert first == f"ada:x:{os.getuid()}:{os.getgid()}::/home/ada:/bin/bash"
    assert rest == ["root:x:0:0::/root:/bin/sh"]
    hostile = {"HOME": "/x\nroot:x:0:0::/:/bin/sh", "SHELL": "/a:b"}
    assert ssh_stream.passwd_with("ada", hostile, "").splitlines() == [f"ada:x:{os.getuid()}:{os.getgid()}::/:/"]


@pytest.mark.skipif(os.getuid() != 0 or shutil.which("setpriv") is None, reason="needs root to become another user")
def test_the_account_is_seen_there_alone_and_gives_no_rights() -> None:
    with short_folder() as folder:
        folder.chmod(0o755)
        (folder / "passwd").write_text("ada:x:54321:54321::/:/bin/sh\n")
        (folder / "group").write_text("tty:x:65534:\n")
        for file in (folder / "passwd", folder / "group"):
            file.chmod(0o644)
        become = ["setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups"]
        seen = subprocess.run(
            [*become, *ssh_stream.within(folder), "sh", "-c", "id -un; grep ^Cap /proc/self/status"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    if "unshare" in seen.stderr:
        pytest.skip(f"this machine lets users make no namespaces: {seen.stderr}")
    name, *capabilities = seen.stdout.split("\n")
    assert name == "ada", seen.stderr
    held = dict(line.split(":\t") for line in capabilities if line)
    assert (held["CapEff"], held["CapPrm"], held["CapAmb"]) == ("0" * 16,) * 3


@pytest.mark.skipif(REAL is None or os.getuid() != 0, reason="needs OpenSSH's server, and root for its own account")
def test_real_ssh_runs_a_program_with_the_environment_of_the_task(tmp_path: Path) -> None:
    with serving(tmp_path, programs(tmp_path / "bin")) as server:
        user = server.run("look").stdout.strip()
        key = tmp_path / ".config" / "detlab" / "ssh" / "id_ed25519"
        host = ssh.SshHost("shell-1", user, key, shlex.join(server.command("carry")))
        line = f"{host.command()} 'echo $DET_TASK_ID \"$QUOTED\"; cat'"
        result = subprocess.run(
            line, shell=True, input="x\n" * 100_000, env=server.environ, capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip
        assert result.stdout == 'shell-1 a "b\\\n' + "x\n" * 100_000, result.stderr
