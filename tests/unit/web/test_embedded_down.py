"""What `det down` says before it ends what cannot continue."""

from detlab.schemas.taskwire import TaskKind
from detlab.schemas.wire import TrialState
from detlab_hub.embedded.lifecycle import drain
from detlab_hub.embedded.state import StartPlan
from testbed.fake_master.api import FakeMaster


def said(master: FakeMaster) -> list[str]:
    lines: list[str] = []
    port = int(master.url.rpartition(":")[2])
    plan = StartPlan(port=1, hub_port=2, proxy_api_port=3, master_port=port, operator="ann")
    drain(plan, master.token, 0.0, lines.append)
    return lines


def test_det_down_says_whose_notebooks_and_shells_end() -> None:
    with FakeMaster() as master:
        for kind, owner in ((TaskKind.NOTEBOOK, "alice"), (TaskKind.NOTEBOOK, "alice"), (TaskKind.SHELL, "bob")):
            master.add_task(kind, owner=owner)
        master.add_task(TaskKind.COMMAND, owner="carol")
        master.add_task(TaskKind.NOTEBOOK, owner="dora", state=TrialState.COMPLETED)
        line = said(master)[0]
    assert line.startswith("This ends: notebook of alice (2), shell of bob. Files stay")
    assert "memory of their kernels is lost" in line


def test_det_down_says_nothing_of_servers_where_there_are_none() -> None:
    with FakeMaster() as master:
        master.add_task(TaskKind.COMMAND)
        assert not any("This ends" in line for line in said(master))
