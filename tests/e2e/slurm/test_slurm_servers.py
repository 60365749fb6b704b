"""A notebook and a shell on nodes of a real Slurm, through the Hub's proxy."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
import websocket
from slurm_lab import SlurmLab, slurm_lab

from testbed.servers import Kernel, Person, open_terminal, person
from testbed.waiting import until

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.timeout(480)]
WHERE = {"pool": "slurm", "runtime": "slurm"}
CONFIG = "c.EmbeddedCluster.extra_users = ['ada']\nc.DetSpawner.runtimes = ['process', 'slurm']\n"


@pytest.fixture(scope="module")
def place() -> Iterator[SlurmLab]:
    with slurm_lab(config=CONFIG) as made:
        yield made


@pytest.fixture(scope="module")
def ada(place: SlurmLab) -> Iterator[Person]:
    one = person(place.lab.cluster, "ada")
    yield one
    one.close()


def test_a_notebook_is_a_job_and_its_kernel_answers_also_after_the_agents_death(place: SlurmLab, ada: Person) -> None:
    reply = ada.start("nb", kind="notebook", **WHERE)
    assert reply.status_code in {201, 202}, reply.text
    server = ada.ready("nb")
    assert any(name.startswith("detlab-") for name in place.slurm.jobs())
    kernel = Kernel(server, ada.token)
    said = kernel.run("import os; answer = 41; print('on', os.environ['SLURM_JOB_ID'] if 0 else answer)")
    assert "on 41" in said
    place.agent.kill()
    place.agent.start()
    assert "42" in Kernel(server, ada.token, kernel.id).run("print(answer + 1)")
    assert ada.until_task(name="nb", display_state="RUNNING")["agent_id"] == "batch"
    ada.stop("nb")
    until(lambda: not place.slurm.jobs(), "the job stays", 60)


def test_a_shell_is_a_job_whose_owner_works_in_it(place: SlurmLab, ada: Person) -> None:
    ada.start("sh", kind="shell", **WHERE)
    url = open_terminal(ada.ready("sh"), ada.token)
    connection = websocket.create_connection(url, header=[f"Authorization: token {ada.token}"], timeout=30)
    connection.send('["stdin", "echo $((6*7)); echo $((6*8))\\r"]')
    seen = ""
    while "48\\r" not in seen:
        seen += connection.recv()
    assert "42" in seen
    connection.close()
    refused = httpx.get(f"{ada.ready('sh')}api/status", trust_env=False, timeout=30)
    assert refused.status_code in {302, 403}, "nobody else gets in"
    ada.stop("sh")
    until(lambda: not place.slurm.jobs(), "the job stays", 60)
