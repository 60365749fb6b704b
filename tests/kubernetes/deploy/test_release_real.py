"""A release of the chart on a real node: its pods come up, its agent offers the node, an experiment runs to its end."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "integration" / "deploy"))

from chart import CHART, NAME, RELEASE, run

from detlab.trust import pinning
from detlab_hub.embedded.parts import find_proxy
from testbed.databases import postgres
from testbed.kubernetes import images
from testbed.kubernetes.control_plane import program
from testbed.kubernetes.services import relayed, shown
from testbed.kubernetes.sites import RealSite
from testbed.waiting import until

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow, pytest.mark.timeout(500)]
IMAGE = "localhost/detlab-test/release:1"
DATABASE = "localhost/detlab-test/postgres:1"
"""PostgreSQL of this machine, started as the image of the chart starts it."""
STARTS_POSTGRES = """#!/bin/sh
# What the official image does: the first start makes the user, the database, and what the files say.
set -eu
test "$#" -gt 0 || set -- postgres
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    printf %s "$POSTGRES_PASSWORD" > /tmp/password
    initdb --username="$POSTGRES_USER" --pwfile=/tmp/password --auth-local=trust --auth-host=scram-sha-256
    rm /tmp/password
    echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
    pg_ctl start --wait --options="-c listen_addresses=''"
    createdb --username="$POSTGRES_USER" "$POSTGRES_DB"
    for file in /docker-entrypoint-initdb.d/*.sql; do
        psql --set=ON_ERROR_STOP=1 --username="$POSTGRES_USER" --dbname="$POSTGRES_DB" --file="$file"
    done
    pg_ctl stop --wait
fi
exec "$@" -c listen_addresses='*'
"""
CODE = """
import detlab as det

with det.core.init() as core:
    lr = det.get_cluster_info().trial.hparams["lr"]
    for step in range(1, 4):
        core.train.report_validation_metrics(step, {"loss": lr / step})
"""
CONFIG = """
name: on-kubernetes
entrypoint: python3 train.py
hyperparameters: {lr: {type: double, minval: 0.1, maxval: 1.0}}
searcher: {name: random, metric: loss, max_trials: 2}
"""


class Release:
    """The release, as its admin sees it."""

    def __init__(self, site: RealSite, plane, node, folder: Path) -> None:
        self.site, self.plane, self.node, self.folder = site, plane, node, folder
        self.config = str(plane.kubeconfig(namespace=site.namespace, name=site.namespace))

    def install(self, databases: Mapping[str, str], pods: int) -> None:
        """Install it; `databases` are its values about them, and `pods` is how many it is then."""
        self.pods = pods
        proxy = f'#!/bin/sh\nexec {" ".join(find_proxy())} "$@"\n'.encode()
        files = images.layer({"opt/bin/configurable-http-proxy": (proxy, 0o755)})
        path = f"/opt/bin:{Path(sys.prefix) / 'bin'}:/usr/bin:/bin"
        self.node.add_image(IMAGE, images.archive(IMAGE, files, {"PATH": path, "LANG": "C.UTF-8"}, ["python3"]))
        for claim in ("state-{}-master-0", "state-{}-agent-0", "data-{}-database-0", "{}-checkpoints"):
            self._volume(claim.format(NAME))
        settings = {
            "images.hub": IMAGE,
            "images.agent": IMAGE,
            "images.tasks": IMAGE,
            "images.pullPolicy": "Never",
            "checkpoints.accessMode": "ReadWriteOnce",
            "agent.namespace": self.site.namespace,
            **databases,
        }
        options = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        done = run("upgrade", "--install", RELEASE, str(CHART), "--server-side=false", *options, *self._where())
        assert done.returncode == 0, done.stderr

    def _where(self) -> list[str]:
        return ["--kubeconfig", self.config, "--namespace", self.site.namespace]

    def _volume(self, claim: str) -> None:
        folder = self.folder / claim
        folder.mkdir()
        folder.chmod(0o777)
        spec = {
            "capacity": {"storage": "50Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": str(folder)},
            "claimRef": {"namespace": self.site.namespace, "name": claim},
        }
        meta = {"name": f"{self.site.namespace}-{claim}"}
        self.site.admin.post("/api/v1/persistentvolumes", {"metadata": meta, "spec": spec})

    def remove(self) -> None:
        run("uninstall", RELEASE, *self._where())
        for volume in self.site.admin.get("/api/v1/persistentvolumes")["items"]:
            if volume["metadata"]["name"].startswith(f"{self.site.namespace}-"):
                self.site.admin.delete(f"/api/v1/persistentvolumes/{volume['metadata']['name']}")

    def ready(self) -> bool:
        """Whether each pod of the release is ready."""
        pods = self.site.admin.get(self.site.pods)["items"]
        own = [pod for pod in pods if pod["metadata"].get("labels", {}).get("app.kubernetes.io/instance") == RELEASE]
        conditions = [one for pod in own for one in pod["status"].get("conditions", []) if one["type"] == "Ready"]
        return len(own) == len(conditions) == self.pods and all(one["status"] == "True" for one in conditions)

    def logs(self) -> str:
        """What all pods say."""
        kubectl = [program("kubectl"), *self._where()]
        found = []
        for pod in self.site.admin.get(self.site.pods)["items"]:
            name = pod["metadata"]["name"]
            said = subprocess.run([*kubectl, "logs", "--tail=300", name], capture_output=True, text=True, check=False)
            lines = [
                line for line in f"{said.stdout}{said.stderr}".splitlines() if not re.search(r" 200 GET |XSRF", line)
            ]
            found.append("\n".join([f"--- {name} {json.dumps(pod['status'])[:1500]}", *lines[-30:]]))
        return "\n".join(found)

    def secret(self, key: str) -> str:
        data = self.site.admin.get(f"{self.site.at}/secrets/{NAME}")["data"]
        return base64.b64decode(data[key]).decode()

    def browser(self) -> httpx.Client:
        """A client at the proxy's service, logged in as the admin."""
        service = self.site.admin.get(f"{self.site.at}/services/{NAME}-proxy")["spec"]["clusterIP"]
        pem = self.site.admin.get(f"{self.site.at}/configmaps/{NAME}-certificate")["data"]["tls.crt"]
        (self.folder / "tls.crt").write_text(pem)
        page = httpx.Client(base_url=f"https://{service}", verify=pinning(pem), follow_redirects=True, timeout=60)
        page.get("/hub/login")
        form = {"username": "admin", "password": self.secret("password-admin")}
        reply = page.post("/hub/login", data={**form, "_xsrf": page.cookies.get("_xsrf", path="/hub/")})
        assert reply.status_code == 200, reply.text
        return page


@contextmanager
def given_databases(plane, node, server: postgres.Server) -> Iterator[tuple[dict[str, str], int]]:
    """Databases of a server that is there, and how many pods the release has then."""
    with (
        server.database("release_master") as own,
        server.database("release_hub") as hub,
        shown(plane, server.port) as at,
    ):
        there = {"database.url": own, "database.hubUrl": hub}
        yield {name: url.replace(f"127.0.0.1:{server.port}", at) for name, url in there.items()}, 4


@contextmanager
def own_databases(plane, node, server: postgres.Server) -> Iterator[tuple[dict[str, str], int]]:
    """The same, for the chart's own server."""
    users = b"root:x:0:0:root:/root:/bin/sh\npostgres:x:999:999:postgres:/:/bin/sh\n"
    files = {"opt/bin/start": (STARTS_POSTGRES.encode(), 0o755), "etc/passwd": (users, 0o644)}
    variables = {"PATH": f"{Path(postgres.binary('postgres')).parent}:/usr/bin:/bin", "LANG": "C.UTF-8"}
    node.add_image(DATABASE, images.archive(DATABASE, images.layer(files), variables, ["/opt/bin/start"]))
    yield {"database.image": DATABASE}, 5


@pytest.fixture(scope="module", params=[given_databases, own_databases])
def release(plane, node, postgres_server, request):
    """The chart as it comes; kube-proxy's part is a relay's."""
    folder = Path(tempfile.mkdtemp(prefix="detlab-release-"))
    folder.chmod(0o755)
    site = RealSite(plane)
    found = Release(site, plane, node, folder)
    try:
        with request.param(plane, node, postgres_server) as (databases, pods):
            found.install(databases, pods)
            with relayed(plane, site.namespace):
                until(found.ready, found.logs, 180)
                yield found
            found.remove()
            site.end()
            site.admin.http.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_an_experiment_runs_on_the_cluster_to_its_end(release, tmp_path):
    (tmp_path / "train.py").write_text(CODE)
    (tmp_path / "config.yaml").write_text(CONFIG)
    with closing(release.browser()) as page:
        xsrf = page.cookies.get("_xsrf", path="/hub/")
        made = page.post("/hub/api/users/admin/tokens", headers={"X-XSRFToken": xsrf}, json={"note": "test"})
        assert made.status_code == 201, made.text
        environment = {
            "PATH": f"{Path(sys.prefix) / 'bin'}:/usr/bin:/bin",
            "HOME": str(tmp_path),
            "DET_URL": str(page.base_url),
            "DET_TOKEN": made.json()["token"],
            "DET_MASTER_CERT_FILE": str(release.folder / "tls.crt"),
        }

        def det(*words: str) -> str:
            done = subprocess.run(
                ["det", *words], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{release.logs()}"
            return done.stdout

        until(lambda: "real-1" in det("agent", "list"), release.logs, 60)
        said = det("experiment", "create", "config.yaml", ".", "--follow")
        assert "COMPLETED" in said, f"{said}\n{release.logs()}"
