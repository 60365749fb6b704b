"""Images from a registry that has them: the real engine pulls from a real (small) registry, and the task runs."""

import sys

import pytest
from agent_docker import exited, in_container, python

from testbed.containers import docker_images
from testbed.containers.registry import registry

LOGIN = "ada:registry-secret-47"
AUTH = {"username": "ada", "password": "registry-secret-47"}


def push(found, image, word):
    """Have an image that says a word of its own in /etc/word."""
    files = {**docker_images.accounts_here(), "etc/word": word.encode()}
    path = f"PATH={sys.prefix}/bin:{sys.base_prefix}/bin:/usr/bin:/bin"
    found.push(image, docker_images.whole_system(files), [path])


@pytest.fixture
def pulling(master, docker_agent):
    """Runs a task in an image and returns it with its end; the images are removed after the test."""
    used = set()

    def run(image, **options):
        used.add(image)
        task = in_container(master, python("print(open('/etc/word').read())"), image=image, **options)
        master.wait_for(exited(task), timeout=40)
        return task

    yield run
    docker_agent.engine.remove_containers()
    for image in used:
        docker_agent.engine.request("DELETE", f"/images/{image}?force=1")


def ran(master, task, word):
    assert (task.exits[0].exit_code, task.exits[0].reason) == (0, ""), (task.exits, master.texts(task))
    assert master.texts(task, "stdout") == [word]


def test_the_right_password_pulls_an_image_that_runs_and_without_it_nobody_does(master, docker_agent, pulling):
    with registry(LOGIN) as found:
        push(found, "closed/image:1", "from a closed registry")
        image = f"{found.address}/closed/image:1"
        for given in (None, {**AUTH, "password": "wrong"}, {**AUTH, "username": "bob"}):
            refused = pulling(image, registry_auth=given)
            assert (refused.exits[0].reason, refused.started) == ("setup", 0)
            assert f"image {image} is not on this node and cannot be pulled: " in refused.exits[0].message
            assert "unauthorized" in refused.exits[0].message or "no basic auth" in refused.exits[0].message
            assert "registry-secret" not in refused.exits[0].message
        assert found.pulls("closed/image:1") == 0
        task = pulling(image, registry_auth=AUTH)
        ran(master, task, "from a closed registry")
        assert found.pulls("closed/image:1") > 0
        assert any(stage.message.startswith(f"pulling {image}") for stage in task.stages)


def test_an_image_that_is_here_is_pulled_again_only_when_the_task_wants_it(master, docker_agent, pulling):
    """From a registry that is open to all."""
    with registry() as found:
        image = f"{found.address}/moving:latest"
        push(found, "moving:latest", "the first")
        ran(master, pulling(image), "the first")
        before = len(found.asked)
        push(found, "moving:latest", "the second")
        ran(master, pulling(image), "the first")
        assert len(found.asked) == before, "what is here is not asked for"
        ran(master, pulling(image, force_pull=True), "the second")
        given = found.pulls("moving:latest")
        assert given > 1
        ran(master, pulling(image, force_pull=True), "the second")
        assert found.pulls("moving:latest") > given, "it is asked each time, also when nothing is new"
        found.served.clear()
        gone = pulling(image, force_pull=True)
        assert (gone.exits[0].reason, gone.started) == ("setup", 0), "the old one is not run in its place"
        assert "cannot be pulled" in gone.exits[0].message
        ran(master, pulling(image), "the second")
