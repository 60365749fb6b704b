"""The runtimes of detlab keep the contract of runtimes."""

import pytest
from agent_docker import in_container

from detlab.testing.runtimes import RuntimeContract


def of_task(agent, task):
    directory = agent.task_dir(task)
    record = directory.with_name(f"{directory.name}.json")
    return [*(path for path in (directory, record) if path.exists()), *agent.processes(task)]


class TestProcess(RuntimeContract):
    runtime = "process"

    def left_behind(self, agent, task):
        return of_task(agent, task)


class TestDocker(RuntimeContract):
    runtime = "docker"

    @pytest.fixture
    def agent(self, docker_agent):
        return docker_agent

    def launch(self, master, entrypoint, **options):
        return in_container(master, entrypoint, **options)

    def left_behind(self, agent, task):
        return [*of_task(agent, task), *agent.engine.containers()]
