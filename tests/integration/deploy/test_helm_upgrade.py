"""The chart through Helm on an API server: installed, upgraded with other values, removed and installed again."""

from __future__ import annotations

import base64
import itertools

import pytest
from chart import CHART, NAME, NAMESPACE, RELEASE, run

from testbed.kubernetes.fake.cluster import ADMIN, FakeCluster
from testbed.kubernetes.fake.resources import Resource

KINDS = (
    Resource("", "v1", "endpoints", "Endpoints"),
    Resource("apps", "v1", "deployments", "Deployment", True, ("status",)),
    Resource("apps", "v1", "statefulsets", "StatefulSet", True, ("status",)),
    Resource("networking.k8s.io", "v1", "ingresses", "Ingress"),
    Resource("rbac.authorization.k8s.io", "v1", "roles", "Role"),
    Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"),
    Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False),
    Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False),
)

_numbers = itertools.count(1)
FAKE = ("--server-side=false", "--disable-openapi-validation")
"""What the fake API server lacks."""


@pytest.fixture
def helm(tmp_path, postgres_server, monkeypatch):
    """A cluster, and Helm for it, which keeps its releases in PostgreSQL: it speaks to the API in Protocol Buffers."""
    with postgres_server.database(f"releases{next(_numbers)}") as releases, FakeCluster(tmp_path) as cluster:
        monkeypatch.setenv("HELM_DRIVER", "sql")
        monkeypatch.setenv("HELM_DRIVER_SQL_CONNECTION_STRING", f"{releases}?sslmode=disable")
        for kind in KINDS:
            cluster.do(lambda kind=kind: cluster.store.serve(kind))
        cluster.users[""] = "admin"  # Helm's client sends no token to an address that is not https
        cluster.add_namespace(NAMESPACE)
        yield Helm(cluster)


class Helm:
    """Helm for one cluster."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.config = str(cluster.kubeconfig(ADMIN, NAMESPACE))

    def __call__(self, command: str, *more: str) -> str:
        done = run(command, RELEASE, *more, "--kubeconfig", self.config, "--namespace", NAMESPACE)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def release(self, *settings: str) -> str:
        """Install or upgrade, as the how-to says."""
        options = [part for setting in settings for part in ("--set", setting)]
        return self("upgrade", "--install", str(CHART), *FAKE, *options)

    def secret(self, name: str = NAME) -> dict[str, str]:
        """Return the content of a secret."""
        (found,) = [it for it in self.cluster.objects("secrets", NAMESPACE) if it["metadata"]["name"] == name]
        return {key: base64.b64decode(value).decode() for key, value in found["data"].items()}

    def names(self, plural: str, group: str = "") -> set[str]:
        """Return the names of the objects of a kind in the release's namespace, or in none."""
        return {it["metadata"]["name"] for it in self.cluster.objects(plural, "", group)}


def test_an_upgrade_keeps_every_secret_and_the_certificate(helm):
    helm.release()
    before, certificate = helm.secret(), helm.secret(f"{NAME}-tls")
    helm.release("auth.users={ada}", "publicUrl=https://hub.example.org", "hub.podTimeout=900")
    after = helm.secret()
    assert {key: after[key] for key in before} == before
    assert after.keys() - before.keys() == {"password-ada"}
    assert helm.secret(f"{NAME}-tls") == certificate
    config = helm.secret(f"{NAME}-config")["config.json"]
    assert '"podTimeout": 900' in config
    helm.release("auth.users={ada,ben}")
    assert helm.secret()["password-ada"] == after["password-ada"]


def test_a_database_of_ones_own_takes_the_place_of_the_charts(helm):
    helm.release()
    assert f"{NAME}-database" in helm.names("statefulsets", "apps")
    assert helm.secret()["database-url"].startswith("postgresql://detlab:")
    helm.release("database.url=postgresql://u:p@db.example/detlab", "database.hubUrl=postgresql://u:p@db.example/hub")
    assert f"{NAME}-database" not in helm.names("statefulsets", "apps")
    assert helm.secret()["database-url"] == "postgresql://u:p@db.example/detlab"


def test_what_must_not_be_lost_outlives_a_removal_and_is_taken_up_again(helm):
    helm.release(f"agent.namespace={NAMESPACE}")
    before, certificate = helm.secret(), helm.secret(f"{NAME}-tls")
    helm("uninstall")
    assert helm.names("deployments", "apps") == set()
    assert helm.names("clusterroles", "rbac.authorization.k8s.io") == set()
    assert helm.names("persistentvolumeclaims") == {f"{NAME}-checkpoints"}
    helm.release(f"agent.namespace={NAMESPACE}")
    assert helm.secret() == before
    assert helm.secret(f"{NAME}-tls") == certificate


def test_a_release_whose_tasks_share_its_volume_is_not_parted_from_it_by_an_upgrade(helm):
    """Tasks have a namespace of their own by default now, where the volume of checkpoints is not."""
    helm.release(f"agent.namespace={NAMESPACE}")
    done = run(
        "upgrade", RELEASE, str(CHART), *FAKE, "--reset-values", "--kubeconfig", helm.config, "--namespace", NAMESPACE
    )
    assert done.returncode != 0
    assert f"agent.namespace={NAMESPACE}, or set checkpoints.storage" in done.stderr
    helm.release("checkpoints.storage.type=s3", "checkpoints.storage.bucket=lab")
    assert f"{NAMESPACE}-{NAME}-tasks" in helm.names("namespaces")


def test_tasks_do_not_reach_the_api_server_at_its_own_addresses_which_may_be_public(helm):
    """A policy sees those, not that of the Service `kubernetes`; clouds have public ones."""
    addresses = [{"ip": "203.0.113.7"}, {"ip": "2001:db8::7"}]
    api = {"metadata": {"name": "kubernetes"}, "subsets": [{"addresses": addresses}]}
    helm.cluster.create("endpoints", api, "default")
    helm.release("networkPolicy.enabled=true")
    (policy,) = [
        it
        for it in helm.cluster.objects("networkpolicies", group="networking.k8s.io")
        if it["metadata"]["name"] == f"{NAME}-tasks"
    ]
    blocks = {one["ipBlock"]["cidr"]: one["ipBlock"]["except"] for one in policy["spec"]["egress"][-1]["to"]}
    assert "203.0.113.7/32" in blocks["0.0.0.0/0"]
    assert "2001:db8::7/128" in blocks["::/0"]


def test_two_releases_share_a_cluster(helm):
    helm.release()
    helm.cluster.add_namespace("other")
    done = run("install", RELEASE, str(CHART), *FAKE, "--kubeconfig", helm.config, "--namespace", "other")
    assert done.returncode == 0, done.stderr
    assert len(helm.names("clusterroles", "rbac.authorization.k8s.io")) == 2
    assert {"lab-rel-detlab-tasks", "other-rel-detlab-tasks"} <= helm.names("priorityclasses", "scheduling.k8s.io")
