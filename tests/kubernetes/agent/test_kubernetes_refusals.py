"""What an operator has done wrong is said at the start."""

import re

import pytest
from kubernetes_agents import ON_FAKE, STEPS, ClusterAgent, ended, launch, python


def refused(master, kube, directory, *options, settings=None, environ=None):
    """Start an agent that cannot work, and return what it says."""
    directory.mkdir()
    agent = ClusterAgent(master, directory / "agent", kube, *options, settings=settings)
    agent.environ = environ or {}
    agent.start()
    try:
        assert agent.process.wait(90) == 1
    finally:
        agent.end()
    return agent.log.read_text()


class TestRefusals:
    """What an operator has done wrong is said at the start."""

    @pytest.mark.parametrize(("verb", "plural"), [("create", "pods"), ("list", "nodes"), ("create", "secrets")])
    def test_a_right_that_lacks_is_named(self, master, kube, open_tmp, verb, plural):
        kube.take_right(verb, plural)
        said = refused(master, kube, open_tmp / "other")
        assert f"missing rights in namespace {kube.namespace}: {verb} {plural}" in said

    def test_a_namespace_that_is_not_there(self, master, kube, open_tmp):
        said = refused(master, kube, open_tmp / "other", "--namespace", "no-such")
        # Who has no right in it is not told whether it exists.
        assert 'namespaces "no-such" not found' in said or "missing rights in namespace no-such" in said

    def test_a_kubeconfig_that_is_wrong(self, master, kube, open_tmp):
        bad = open_tmp / "bad.yaml"
        for number, content in enumerate(("clusters: []\n", "{}")):
            bad.write_text(content)
            said = refused(master, kube, open_tmp / f"other-{number}", "--kubeconfig", str(bad))
            assert "no access to Kubernetes" in said
            assert str(bad) in said
            assert "Traceback" not in said
        text = kube.kubeconfig.read_text()
        token = re.search(r'"token": "([^"]+)"', text)[1]
        bad.write_text(text.replace(token, "wrong"))
        said = refused(master, kube, open_tmp / "more", "--kubeconfig", str(bad))
        assert "does not accept the credentials" in said

    @ON_FAKE
    def test_a_cluster_without_pod_groups_where_its_own_scheduler_shall_make_gangs(self, master, kube, open_tmp):
        said = refused(master, kube, open_tmp / "other", settings={"gang": "native"})
        assert "gang: native needs PodGroups of scheduling.k8s.io/v1beta1" in said

    @ON_FAKE
    def test_a_clock_that_is_wrong_is_named_where_credentials_are_refused(self, master, kube, open_tmp):
        """A token of a cluster is good for an hour: on a machine whose clock is behind it is not valid yet."""
        kube.cluster.ahead = 7200.0
        kube.kubeconfig = kube.cluster.kubeconfig(token="wrong")
        said = refused(master, kube, open_tmp / "other")
        assert re.search(
            r"does not accept the credentials: Unauthorized; this machine's clock is 7\d\d\d s behind", said
        )
        assert "timedatectl" in said


@ON_FAKE
class TestWhileItWorks:
    """What is wrong is said while the agent works."""

    def test_a_clock_that_is_wrong_is_warned_of_and_the_agent_works(self, kube, agents):
        kube.cluster.ahead = -7200.0
        said = agents().log.read_text()
        assert re.search(r"WARNING .*this machine's clock is 7\d\d\d s ahead of the API server's", said)

    def test_a_namespace_that_goes_under_an_agent_is_named_in_the_refusal_of_a_task(self, master, kube, agents):
        kube.cluster.add_namespace("lab")
        agents("--namespace", "lab")
        store = kube.cluster.store
        namespaces = store.kind("namespaces")
        kube.cluster.do(lambda: store.remove(namespaces, store.get(namespaces, "", "lab")))
        exit_ = ended(master, launch(master, python(STEPS, 1)))
        assert exit_.reason == "refused", "it is no fault of the task: it goes elsewhere, or waits"
        assert "namespace lab is gone or going" in exit_.message
        assert "kubectl create namespace lab" in exit_.message
