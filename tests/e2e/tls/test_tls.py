"""A cluster that speaks TLS: an agent pins its certificate, runs a trial through it, and believes nobody else."""

from __future__ import annotations

import functools
import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from spine_lab import TRIALS, single

from detlab.client import Client
from detlab.client.transport.discovery import ClusterAddress
from detlab.schemas.wire import ExperimentState
from detlab.trust import fingerprint_of, pinning, read_certificate
from testbed import processes
from testbed.agents import Agent, printed_agent
from testbed.cluster import Cluster, running_cluster
from testbed.network.tls_peers import tls_peer
from testbed.waiting import until

pytestmark = [pytest.mark.hub, pytest.mark.slow]
STATE = ".local/state/detlab/agent"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("tls"), slots=1, more=["--tls"]) as running:
        yield running


@pytest.fixture(scope="module")
def url(place: Cluster) -> str:
    return place.url.replace("http:", "https:")


@pytest.fixture(scope="module")
def certificate(place: Cluster) -> str:
    return read_certificate(place.folder / "certificate.pem")


@pytest.fixture(scope="module")
def node(place: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """A second agent, by the printed command; the cluster's own takes no work."""
    printed = place.det("agent", "enrol")
    assert printed.returncode == 0, printed.stderr
    command = printed.stderr.rpartition("→")[2].strip()
    own = json.loads(place.det("agent", "list", "--json").stdout)[0]["id"]
    assert place.det("agent", "disable", own).returncode == 0
    folder = tmp_path_factory.mktemp("node")
    folder.chmod(0o755)
    with printed_agent(command, printed.stdout.strip(), folder, "second", place.environment) as second:
        second.until_it_says("enrolled as second", "connected to cluster")
        yield second


@pytest.fixture
def client(place: Cluster, url: str, certificate: str) -> Iterator[Client]:
    with Client(
        address=ClusterAddress(f"{url}/services/detlab/", place.token, "a test", certificate=certificate)
    ) as one:
        yield one


def test_it_says_its_fingerprint_and_the_key_stays_here(place: Cluster, certificate: str) -> None:
    status = place.det("status")
    assert status.returncode == 0, status.stdout
    assert fingerprint_of(certificate) in status.stdout
    assert (place.folder / "secrets" / "certificate_key.pem").stat().st_mode & 0o777 == 0o600
    assert json.loads((place.folder / "cluster.json").read_text())["certificate"] == certificate


def test_plain_http_gets_nothing_at_that_port(place: Cluster) -> None:
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{place.url}/hub/health", trust_env=False, timeout=10)
    with socket.create_connection(("127.0.0.1", place.port), timeout=10) as plain:
        plain.sendall(b"GET /services/detlab/health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"HTTP/1.1 200" not in plain.recv(4096)


def test_browsers_get_the_hub_by_https_with_secure_cookies(place: Cluster, url: str, certificate: str) -> None:
    with httpx.Client(base_url=url, verify=pinning(certificate), trust_env=False, timeout=30) as browser:
        form = browser.get("/hub/login")
        found = re.search(r'name="_xsrf"\s+value="([^"]+)"', form.text)
        assert found is not None, form.text
        data = {"username": place.user, "password": place.password, "_xsrf": found[1]}
        entered = browser.post("/hub/login?next=%2Fhub%2Fhome", data=data)
        assert entered.status_code == 302, entered.text
        # the Hub's XSRF cookie alone is not: it goes with a session and is worth nothing without
        cookies = [one for one in entered.headers.get_list("set-cookie") if not one.startswith("_xsrf=")]
        assert cookies
        assert all("secure" in one.lower() for one in cookies), cookies
        page = browser.get("/services/detlab/plain", follow_redirects=True)
        assert str(page.url) == f"{url}/services/detlab/plain"
        page.raise_for_status()


def test_an_agent_pins_it_and_its_trial_reports_through_tls(
    place: Cluster, node: Agent, client: Client, url: str, certificate: str
) -> None:
    assert read_certificate(node.folder / STATE / "master.pem") == certificate
    look = "import os, toy; print('VIA', os.environ['DET_MASTER']); toy.main()"
    config = single("toy.py", entrypoint=["python3", "-c", look], hparams={"steps": 5, "save_every": 2, "pause": 0.2})
    experiment = client.create_experiment(config, TRIALS)
    experiment.wait(90)
    ended = experiment.reload()
    trial = ended.await_first_trial(20)
    lines = [line.text for line in trial.logs()]
    assert ended.state is ExperimentState.COMPLETED, (lines, node.log)
    assert f"VIA {url}/services/detlab/" in lines
    assert trial.view.steps_completed == 5
    assert len(list(ended.list_checkpoints())) >= 2
    shown = place.det("trial", "logs", str(trial.id))
    assert "VIA https://" in shown.stdout, shown.stderr


def test_a_command_on_the_node_speaks_tls_from_inside(place: Cluster, node: Agent) -> None:
    """The SDK in a task finds the pin by the task's own environment."""
    look = (
        "import os, pathlib; from detlab.trust import fingerprint_of, read_certificate as read;"
        " print('PIN', fingerprint_of(read(pathlib.Path(os.environ['DET_MASTER_CERT_FILE']))))"
    )
    ran = place.det("cmd", "run", "--", "python3", "-c", look)
    assert ran.returncode == 0, ran.stderr
    assert f"PIN {fingerprint_of(read_certificate(place.folder / 'certificate.pem'))}" in ran.stdout


def det_of_nobody_yet(place: Cluster, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `det` of a person who has not logged in; the token comes by standard input."""
    return subprocess.run(
        place.command(*arguments),
        cwd=home,
        env={**place.environment, "HOME": str(home)},
        input=place.token,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_login_believes_by_fingerprint_only(place: Cluster, url: str, certificate: str, tmp_path: Path) -> None:
    det = functools.partial(det_of_nobody_yet, place, tmp_path)
    blind = det("login", url, "--token-file", "-")
    assert blind.returncode != 0
    assert "no authority that this machine trusts" in blind.stderr
    wrong = det("login", url, "--token-file", "-", "--fingerprint", "sha256:" + "0" * 64)
    assert wrong.returncode != 0
    assert "connection is intercepted" in wrong.stderr
    right = det("login", url, "--token-file", "-", "--fingerprint", fingerprint_of(certificate))
    assert right.returncode == 0, right.stderr
    assert det("user", "whoami").returncode == 0


def test_a_man_in_the_middle_learns_nothing_of_agents(
    place: Cluster, node: Agent, tmp_path: Path, certificate: str
) -> None:
    """Neither of one that enrols, nor of one that is enrolled; and a new pin is taken by its command only."""
    printed = place.det("agent", "enrol").stdout.strip()
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text(printed)
    known = tmp_path / "known"
    known.mkdir()
    for name in ("key.json", "master.pem"):
        shutil.copy(node.folder / STATE / name, known / name)
    with tls_peer(tmp_path) as peer:
        for directory, words in (
            (tmp_path / "fresh", f"shows the certificate {peer.fingerprint}, not {fingerprint_of(certificate)}"),
            (known, "does not show the certificate"),
        ):
            log = tmp_path / f"{directory.name}.log"
            with log.open("wb") as out:
                options = [
                    "--name",
                    "second",
                    "--slots",
                    "1",
                    "--enrolment-token-file",
                    str(token),
                    "--serves-user",
                    "x",
                ]
                agent = subprocess.Popen(
                    [sys.executable, "-m", "detlab_agent", "--master", peer.url, "--dir", str(directory), *options],
                    env=place.environment,
                    stdout=out,
                    stderr=out,
                )
            try:
                until(lambda: words in log.read_text(), log.read_text)  # noqa: B023  (waited for at once)
                assert "det agent pin" in log.read_text() or directory is not known
            finally:
                processes.end(agent, 20)
        assert peer.met >= 2
        assert peer.heard == []
        assert read_certificate(known / "master.pem") == certificate
        pinned = place.det("agent", "pin", peer.url, "--dir", str(known), "--fingerprint", peer.fingerprint)
        assert pinned.returncode == 0, pinned.stderr
        assert read_certificate(known / "master.pem") == peer.certificate


@pytest.mark.soak
def test_a_renewed_certificate_is_refused_until_it_is_pinned(
    place: Cluster, node: Agent, url: str, certificate: str, tmp_path: Path
) -> None:
    """Last: the cluster has another certificate from here on. The agent is not started again."""
    det = functools.partial(det_of_nobody_yet, place, tmp_path)
    assert det("login", url, "--token-file", "-", "--fingerprint", fingerprint_of(certificate)).returncode == 0
    running = place.up("--renew-certificate")
    assert running.returncode != 0
    assert "det down, then this again" in running.stderr
    assert place.down().returncode == 0
    started = place.up("--renew-certificate")
    assert started.returncode == 0, started.stderr
    renewed = fingerprint_of(read_certificate(place.folder / "certificate.pem"))
    assert renewed != fingerprint_of(certificate)
    node.until_it_says("does not show the certificate", f"det agent pin {url}/services/detlab/ --dir")
    refused = det("user", "whoami")
    assert refused.returncode != 0
    assert f"det login {url}" in refused.stderr
    state = str(node.folder / STATE)
    wrong = place.det("agent", "pin", url, "--dir", state, "--fingerprint", fingerprint_of(certificate))
    assert wrong.returncode != 0
    assert place.det("agent", "pin", url, "--dir", state, "--fingerprint", renewed).returncode == 0
    assert det("login", url, "--token-file", "-", "--fingerprint", renewed).returncode == 0
    assert det("user", "whoami").returncode == 0
    ran = place.det("cmd", "run", "--", "sh", "-c", "echo ON $DET_AGENT_ID")
    assert ran.returncode == 0, (ran.stderr, node.log)
    assert "ON second" in ran.stdout
