"""The images that the chart runs: built from their Dockerfiles, and a release of the chart started from them.

Their base is this machine's Python (`testbed.containers.python_image`): no registry is asked. What pip installs is
downloaded here before, so that the build itself is that of a site without a way out.
"""

from __future__ import annotations

import base64
import json
import os
import re
import ssl
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from chart import NAME, NAMESPACE, objects, one

from detlab.trust import pinning
from testbed.containers import python_image
from testbed.waiting import until

ROOT = Path(__file__).resolve().parents[3]
IMAGES = ROOT / "deploy" / "images"
EXTRAS = {"hub": "hub,kube,postgres", "agent": "kubernetes", "tasks": "headless,lab"}
"""Without torch and what no test here touches."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Built:
    """Images of the tests' engine."""

    def __init__(self, engine, folder: Path) -> None:
        self.environment = {
            **os.environ,
            "DOCKER_HOST": engine.url,
            "DOCKER_BUILDKIT": "0",
            "SKIP_JUPYTER_BUILDER": "1",
            "BASE": python_image.IMAGE,
            "OFFLINE": "1",
            "WHEELS": str(folder),
            **{f"EXTRAS_{name.upper()}": extras for name, extras in EXTRAS.items()},
        }
        self.there: set[str] = set()

    def image(self, name: str) -> str:
        """Build an image, unless that was done before; return its name."""
        if name not in self.there:
            wheels = Path(self.environment["WHEELS"])
            self.run(
                sys.executable,
                "-m",
                "pip",
                "--disable-pip-version-check",
                "download",
                "--quiet",
                "--dest",
                str(wheels),
                "--constraint",
                str(ROOT / "constraints.txt"),
                f"{ROOT}[{EXTRAS[name]}]",
                "jupyterhub",
            )
            for own in wheels.glob("detlab-*"):
                own.unlink()
            said = self.run("sh", str(IMAGES / "build.sh"), "testbed/", "t", name)
            assert said.stdout.split() == [f"testbed/detlab-{name}:t"]
            self.there.add(name)
        return f"testbed/detlab-{name}:t"

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a program beside the engine."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=500, check=False)
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done

    def inside(self, image: str, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a program in a container, as strictly as the chart runs the image."""
        strict = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
        return self.run("docker", "run", "--rm", *strict, "--network", "none", image, *command, check=check)


@pytest.fixture(scope="module")
def built(docker_engine, tmp_path_factory):
    python_image.build(docker_engine)
    return Built(docker_engine, tmp_path_factory.mktemp("wheels"))


@pytest.mark.soak
def test_the_hubs_image_has_the_hub_the_master_and_the_proxy(built):
    image = built.image("hub")
    said = built.inside(image, "sh", "-c", "id -u; det --version; jupyterhub --version; python -m detlab_hub --version")
    assert re.fullmatch(r"1000\ndet 0\.1\.0\n6\.\d+\.\d+\n0\.1\.0\n", said.stdout), said.stdout
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", built.inside(image, "configurable-http-proxy", "--version").stdout)
    spawners = built.inside(image, "python", "-c", "import detlab_hub.spawners.kube, psycopg; print('there')")
    assert spawners.stdout == "there\n"
    assert built.inside(image, "python", "-m", "pip", check=False).returncode == 1


@pytest.mark.soak
def test_the_agents_image_is_det_agent_run(built):
    image = built.image("agent")
    said = built.inside(image, "--help")
    assert "Offer this machine's slots to a cluster" in said.stdout
    options = built.inside(image, "--master", "http://hub.example.org", "--dir", "/tmp/a", check=False)
    assert options.returncode == 1
    assert "plain http to another machine" in options.stderr
    asked = ("docker", "run", "--rm", "--entrypoint", "sh", image, "-c", "id -u; det --version")
    assert built.run(*asked).stdout == "1000\ndet 0.1.0\n"


@pytest.mark.soak
def test_the_image_of_tasks_has_a_notebook_and_the_launcher(built):
    image = built.image("tasks")
    programs = "id -u; det --version; jupyterhub-singleuser --version; jupyter lab --version; python -m pip --version"
    lines = built.inside(image, "sh", "-c", programs).stdout.splitlines()
    assert lines[:2] == ["1000", "det 0.1.0"]
    assert len(lines) == 5
    assert "usage" in built.inside(image, "python", "-m", "detlab.launch.elsewhere", "--help").stdout
    assert built.inside(image, "python", "-c", "import detlab_magics").returncode == 0


@pytest.fixture(scope="module")
def release(built, docker_engine, tmp_path_factory):
    """A release of the chart without its agent: proxy, Hub and master, each as the chart starts it."""
    found = Release(built, objects("auth.users={ada}", "agent.enabled=false", "hub.spawner=detlab"), tmp_path_factory)
    try:
        found.start()
        yield found
    finally:
        found.stop()


class Release:
    """Containers in the place of the chart's pods; databases are files."""

    PARTS = ("proxy", "hub", "master")

    def __init__(self, built: Built, made: list[dict], folders) -> None:
        self.built, self.made = built, made
        self.folder = folders.mktemp("release")
        self.folder.chmod(0o755)
        self.secrets = {
            key: base64.b64decode(value).decode() for key, value in one(made, "Secret", NAME)["data"].items()
        }
        self.secrets["database-url"] = "sqlite:////var/lib/detlab/detlab.sqlite"
        self.secrets["hub-database-url"] = "sqlite:////tmp/jupyterhub.sqlite"
        self.network = f"release{os.getpid()}"
        self.subnet = f"10.216.{os.getpid() % 250}"
        self.addresses = {part: f"{self.subnet}.{number}" for number, part in enumerate(self.PARTS, 10)}
        self.certificate = one(made, "ConfigMap", f"{NAME}-certificate")["data"]["tls.crt"]

    @property
    def url(self) -> str:
        """Where the proxy listens."""
        return f"https://{self.addresses['proxy']}:8443"

    def start(self) -> None:
        """Start the parts, and wait until the Hub knows the master."""
        image = self.built.image("hub")
        self._write("secrets", self.secrets)
        files = dict(one(self.made, "ConfigMap", NAME)["data"])
        files["config.json"] = config_of(self.made)
        self._write("config", files)
        tls = one(self.made, "Secret", f"{NAME}-tls")["data"]
        self._write("tls", {key: base64.b64decode(value).decode() for key, value in tls.items()})
        self.built.run("docker", "network", "create", "--subnet", f"{self.subnet}.0/24", self.network)
        hosts = {"proxy": ("proxy", "proxy-api"), "hub": ("hub",), "master": ("master",)}
        names = [
            part
            for where, services in hosts.items()
            for service in services
            for host in (f"{NAME}-{service}", f"{NAME}-{service}.{NAMESPACE}.svc")
            for part in ("--add-host", f"{host}:{self.addresses[where]}")
        ]
        for part in self.PARTS:
            kind = "StatefulSet" if part == "master" else "Deployment"
            spec = one(self.made, kind, f"{NAME}-{part}")["spec"]["template"]["spec"]
            (container,) = spec["containers"]
            security = spec["securityContext"]
            strict = ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
            strict += [
                "--user",
                f"{security['runAsUser']}:{security['runAsGroup']}",
                "--workdir",
                container["workingDir"],
            ]
            environment = [
                word
                for it in container.get("env", [])
                for word in ("--env", f"{it['name']}={self.secrets[it['valueFrom']['secretKeyRef']['key']]}")
            ]
            self.built.run("docker", "run", "--detach", "--name", f"{self.network}-{part}", "--network", self.network,
                           "--ip", self.addresses[part], *names, *strict, *environment, *self._mounts(container),
                           image, *container["args"])  # fmt: skip
        with self.browser() as browser:
            until(lambda: self._answers(browser, "/hub/health"), self.logs)
            until(lambda: self._answers(browser, "/services/detlab/health"), self.logs)

    def _mounts(self, container: dict) -> list[str]:
        kept = {"state": "--tmpfs=/var/lib/detlab:uid=1000", "tmp": "--tmpfs=/tmp:uid=1000"}
        kept["checkpoints"] = "--tmpfs=/srv/detlab/checkpoints:uid=1000"
        return [
            kept.get(mount["name"]) or f"--volume={self.folder / mount['name']}:{mount['mountPath']}:ro"
            for mount in container["volumeMounts"]
        ]

    def _write(self, name: str, files: dict[str, str]) -> None:
        folder = self.folder / name
        folder.mkdir()
        for key, text in files.items():
            path = folder / key
            path.write_text(text, encoding="utf-8")
            os.chown(path, 0, 1000)
            path.chmod(0o440)

    def browser(self) -> httpx.Client:
        """A client that trusts the certificate of the release and no other."""
        return httpx.Client(base_url=self.url, verify=pinning(self.certificate), follow_redirects=True, timeout=30)

    @staticmethod
    def _answers(browser: httpx.Client, path: str) -> bool:
        try:
            return browser.get(path).status_code == 200
        except httpx.TransportError:
            return False

    def logs(self) -> str:
        """The last lines of all parts."""
        found = [self.built.run("docker", "logs", "--tail", "20", f"{self.network}-{part}") for part in self.PARTS]
        return "\n".join(done.stdout + done.stderr for done in found)

    def stop(self) -> None:
        """Remove everything."""
        self.built.run("docker", "rm", "--force", *(f"{self.network}-{part}" for part in self.PARTS), check=False)
        self.built.run("docker", "network", "rm", self.network, check=False)


def config_of(made: list[dict]) -> str:
    return base64.b64decode(one(made, "Secret", f"{NAME}-config")["data"]["config.json"]).decode()


def log_in(browser: httpx.Client, name: str, password: str) -> httpx.Response:
    browser.get("/hub/login")
    form = {"username": name, "password": password, "_xsrf": browser.cookies.get("_xsrf", path="/hub/")}
    return browser.post("/hub/login", data=form)


@pytest.mark.soak
def test_a_release_of_the_chart_serves_the_hub_and_the_master_by_tls(release):
    with release.browser() as browser:
        reply = log_in(browser, "admin", release.secrets["password-admin"])
        assert reply.status_code == 200, reply.text
        page = browser.get("/services/detlab/")
        assert page.status_code == 200
        assert str(page.url) == f"{release.url}/services/detlab/"
    with httpx.Client(verify=ssl.create_default_context(), timeout=10) as stranger, pytest.raises(httpx.ConnectError):
        stranger.get(release.url)


@pytest.mark.soak
def test_a_user_of_the_values_has_a_password_of_their_own(release):
    with release.browser() as browser:
        assert log_in(browser, "ada", release.secrets["password-admin"]).status_code == 403
        assert log_in(browser, "ada", release.secrets["password-ada"]).status_code == 200
        assert browser.get("/hub/admin").status_code == 403


@pytest.mark.soak
def test_the_agents_token_of_the_release_enrols_an_agent(release):
    with release.browser() as browser:
        asked = {"agent_id": "kubernetes"}
        path = "/services/detlab/api/v1/agents/enrol"
        key = {"Authorization": f"Bearer {release.secrets['enrolment-token']}"}
        reply = browser.post(path, json=asked, headers=key)
        assert reply.status_code == 200, reply.text
        assert reply.json()["token"].startswith("dtagent_")
        assert browser.post(path, json=asked, headers={"Authorization": "Bearer dtenrol_x"}).status_code in {401, 403}


@pytest.mark.soak
def test_a_hub_that_is_started_again_knows_its_people(release):
    with release.browser() as browser:
        log_in(browser, "admin", release.secrets["password-admin"])
        release.built.run("docker", "restart", "--time", "20", f"{release.network}-hub")
        deadline = time.monotonic() + 60
        while not release._answers(browser, "/services/detlab/") and time.monotonic() < deadline:
            time.sleep(0.2)
        assert browser.get("/hub/home").status_code == 200


@pytest.mark.soak
def test_no_secret_of_the_release_is_in_its_logs(release):
    said = release.logs()
    assert said
    assert not [key for key, secret in release.secrets.items() if "url" not in key and secret in said]


@pytest.mark.soak
def test_the_release_says_what_its_values_say(release):
    values = json.loads(config_of(release.made))
    assert values["publicUrl"] == f"https://{NAME}-proxy.{NAMESPACE}.svc"
