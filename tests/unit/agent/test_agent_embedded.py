"""What `det up` tells its agent about containers."""

import pytest
from traitlets.config import Config

from detlab_agent.commands import run
from detlab_hub.embedded.parts import _agent
from detlab_hub.embedded.settings import EmbeddedCluster
from detlab_hub.embedded.state import Plan, StateFolder


@pytest.mark.parametrize(("docker", "expected"), [(None, None), (True, "process,docker"), (False, "process")])
def test_the_agents_runtimes(tmp_path, docker, expected):
    folder = StateFolder(tmp_path / ".detlab")
    folder.create()
    plan = Plan(1, 2, 3, 4, "root", docker=docker, docker_mounts=["/data", "/scratch"], docker_volumes=["/a:ro"])
    argv = list(_agent(folder, plan).argv)
    assert ("--runtime" in argv) is (expected is not None)
    assert expected is None or argv[argv.index("--runtime") + 1] == expected
    assert [argv[i + 1] for i, word in enumerate(argv) if word == "--allow-mount"] == ["/data", "/scratch"]
    assert [argv[i + 1] for i, word in enumerate(argv) if word == "--volume"] == ["/a:ro"]
    known = {option for parameter in run.params for option in parameter.opts}
    assert {word for word in argv[3:] if word.startswith("--")} <= known


def test_what_an_operator_may_say():
    assert EmbeddedCluster().docker == "auto"
    assert EmbeddedCluster(config=Config(EmbeddedCluster={"docker": True})).docker is True
    with pytest.raises(Exception, match="docker"):
        EmbeddedCluster(config=Config(EmbeddedCluster={"docker": "perhaps"}))
