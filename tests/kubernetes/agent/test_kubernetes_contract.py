"""The contract of runtimes holds for pods, on the fake cluster and on the real one."""

from kubernetes_agents import launch

from detlab.testing.runtimes import RuntimeContract


class TestKubernetes(RuntimeContract):
    runtime = "kubernetes"
    tasks_are = "elsewhere"
    patience = 60.0

    def launch(self, master, entrypoint, **options):
        options.pop("runtime", None)
        return launch(master, entrypoint, **options)

    def left_behind(self, agent, task):
        return agent.left_behind(task)
