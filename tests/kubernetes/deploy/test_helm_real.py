"""The chart on the real API server: it takes every object, and the rights that it gives are enough and no more."""

from __future__ import annotations

import base64
import itertools
import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "integration" / "deploy"))

from chart import CHART, NAME, RELEASE, run

from detlab_agent.runtimes.kubernetes.preparation import NEEDED, USEFUL
from testbed.kubernetes.api_client import Answer
from testbed.kubernetes.control_plane import program

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]
_numbers = itertools.count(1)
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class Site:
    """A namespace, and Helm for it."""

    def __init__(self, plane, admin) -> None:
        self.admin, self.namespace = admin, f"chart-{next(_numbers)}"
        self.at, self.tasks = f"/api/v1/namespaces/{self.namespace}", f"{self.namespace}-{NAME}-tasks"
        admin.post("/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        self.config = str(plane.kubeconfig(namespace=self.namespace, name=self.namespace))

    def helm(self, *words: str) -> str:
        done = run(*words, "--kubeconfig", self.config, "--namespace", self.namespace)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def release(self, *settings: str) -> None:
        options = [part for setting in settings for part in ("--set", setting)]
        self.helm("upgrade", "--install", RELEASE, str(CHART), "--server-side=false", *options)

    def secret(self, name: str = NAME) -> dict[str, str]:
        data = self.admin.get(f"{self.at}/secrets/{name}")["data"]
        return {key: base64.b64decode(value).decode() for key, value in data.items()}

    def may(self, account: str, verb: str, plural: str, group: str = "", sub: str = "", namespace: str = "") -> bool:
        """Ask the API server whether a service account of the release has a right."""
        asked = {"verb": verb, "resource": plural, "group": group, "subresource": sub, "namespace": namespace}
        user = f"system:serviceaccount:{self.namespace}:{NAME}-{account}"
        reply = self.admin.post(REVIEWS, {"spec": {"user": user, "resourceAttributes": asked}})
        return reply["status"]["allowed"]


@pytest.fixture
def site(plane):
    with plane.admin as admin:
        found = Site(plane, admin)
        yield found
        run("uninstall", RELEASE, "--kubeconfig", found.config, "--namespace", found.namespace)
        for namespace in (found.namespace, found.tasks):
            with suppress(Answer):
                admin.delete(f"/api/v1/namespaces/{namespace}")


def test_the_real_server_takes_every_object_and_an_upgrade_keeps_the_secrets(site):
    everything = ("networkPolicy.enabled=true", "ingress.enabled=true", "publicUrl=https://hub.example.org")
    site.release(*everything)
    before, certificate = site.secret(), site.secret(f"{NAME}-tls")
    site.release(*everything, "auth.users={ada}", "hub.podTimeout=900", "agent.settings.cpu_slots=2")
    after = site.secret()
    assert {key: after[key] for key in before} == before
    assert site.secret(f"{NAME}-tls") == certificate
    assert json.loads(site.secret(f"{NAME}-config")["config.json"])["podTimeout"] == 900
    settings = site.admin.get(f"{site.at}/configmaps/{NAME}-agent")["data"]["settings.yaml"]
    assert "cpu_slots: 2" in settings
    site.helm("uninstall", RELEASE)
    assert site.secret() == after
    site.release(*everything)
    assert {key: site.secret()[key] for key in before} == before


def test_no_object_has_a_field_that_the_server_does_not_know(site):
    """A server of this age takes unknown fields in silence; its own client, which checks them, does not."""
    one = f"networkPolicy.enabled=true,agent.namespace={site.namespace}"
    done = run("template", RELEASE, str(CHART), "--set", one, "--namespace", site.namespace)
    apply = [program("kubectl"), "--kubeconfig", site.config, "apply", "--dry-run=server", "--validate=true", "-f", "-"]
    said = subprocess.run(apply, input=done.stdout, capture_output=True, text=True, timeout=60, check=False)
    assert said.returncode == 0, said.stderr
    assert said.stdout.count("server dry run") > 25


def test_the_agents_account_has_each_right_that_it_checks_and_none_on_the_secrets_of_others(site):
    site.release()
    for right in (*NEEDED, *USEFUL):
        where = "" if right.everywhere else site.tasks
        assert site.may("agent", right.verb, right.plural, right.group, right.sub, where), str(right)
    for verb in ("get", "list", "watch"):
        for namespace in (site.namespace, site.tasks):
            assert not site.may("agent", verb, "secrets", namespace=namespace)
            assert not site.may("hub", verb, "secrets", namespace=namespace)
    for verb, plural in (("create", "pods"), ("list", "pods"), ("create", "secrets")):
        for namespace in ("default", site.namespace):
            assert not site.may("agent", verb, plural, namespace=namespace)
    assert not site.may("agent", "patch", "nodes")
    assert site.may("hub", "create", "pods", namespace=site.tasks)
    assert not site.may("hub", "create", "pods", namespace="default")
    assert not site.may("hub", "create", "pods", namespace=site.namespace)
    assert not site.may("tasks", "list", "pods", namespace=site.tasks)
