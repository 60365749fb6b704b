"""The contract of runtimes holds for pods, on the fake cluster and on the real one."""

import base64

from kubernetes_agents import STEPS, ended, launch, python, started

from detlab.schemas.wire import ContainerSpec
from detlab.testing.runtimes import RuntimeContract
from testbed.kubernetes import images


class TestKubernetes(RuntimeContract):
    runtime = "kubernetes"
    tasks_are = "elsewhere"
    patience = 60.0

    def launch(self, master, entrypoint, **options):
        options.pop("runtime", None)
        return launch(master, entrypoint, **options)

    def left_behind(self, agent, task):
        return agent.left_behind(task)


def test_the_password_of_an_images_registry_is_in_the_cluster_while_its_task_runs(master, agent, kube):
    """As a secret with which the node pulls it, which goes with the pod; the pod itself does not see it."""
    image = ContainerSpec(image=images.PYTHON, registry_auth={"username": "u", "password": "of-the-registry"})
    task = started(master, launch(master, python(STEPS, 20), container=image))
    pod = kube.pod_of(task)
    (named,) = pod["spec"]["imagePullSecrets"]
    secret = kube.admin.get(f"{kube.site.at}/secrets/{named['name']}")
    assert secret["type"] == "kubernetes.io/dockerconfigjson"
    assert b"of-the-registry" in base64.b64decode(secret["data"][".dockerconfigjson"])
    assert ".dockerconfigjson" not in str(pod["spec"]["containers"])
    assert ended(master, task).exit_code == 0
    agent.none_left()
