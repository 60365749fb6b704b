"""examples/custom_search on a real cluster: the class decides, through a killed master and a mended bug."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from spine_lab import Lab, lab_of, until

from detlab.client.resources import Experiment
from detlab.errors import DetlabError
from detlab.schemas.taskwire import TaskEnd
from detlab.schemas.wire import ExperimentState
from testbed.cluster import running_cluster

pytestmark = [pytest.mark.hub, pytest.mark.timeout(300)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_search"
SEED = 11
RAISES = """
from detlab.searcher import Create, SearchMethod


class Careless(SearchMethod):
    def initial_operations(self, state):
        return [Create(state.sample())]

    def on_trial_closed(self, state, request_id):
        best = {}
        return best["point"]
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A cluster whose master is killed."""
    with running_cluster(tmp_path_factory.mktemp("custom"), slots=2) as cluster, lab_of(cluster) as lab:
        yield lab


def config(**searcher: Any) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((EXAMPLE / "search.yaml").read_text(encoding="utf-8"))
    return {
        **loaded,
        "reproducibility": {"experiment_seed": SEED},
        "searcher": {**loaded["searcher"], "max_trials": 12, **searcher},
    }


def points(experiment: Experiment) -> list[Any]:
    return [trial.hparams for trial in sorted(experiment.list_trials(), key=lambda trial: trial.view.index)]


def answering(experiment: Experiment) -> Experiment | None:
    """Ask for an experiment while its master may be away."""
    try:
        return experiment.reload()
    except DetlabError:
        return None


def made(experiment: Experiment, count: int) -> bool:
    found = answering(experiment)
    return found is not None and sum(found.view.trials.values()) >= count


@pytest.fixture(scope="module")
def calm(lab: Lab) -> list[Any]:
    experiment = lab.completed(lab.client.create_experiment(config(), EXAMPLE), 120)
    return points(experiment)


def test_class_makes_all_trials_in_a_task_without_slots_that_ends_with_the_search(lab: Lab, calm: list[Any]) -> None:
    assert len(calm) == 12
    [experiment] = lab.client.list_experiments()
    assert experiment.view.search_task is not None
    task = lab.client.get_task(experiment.view.search_task)
    until("the end of the task", lambda: task.reload().state.terminal, 30)
    assert task.view.end_reason is TaskEnd.COMPLETED
    assert task.view.slots_needed == 0
    assert "COMPLETED" in "\n".join(line.text for line in task.iter_logs())


@pytest.mark.soak
def test_killed_master_and_killed_search_task_change_no_point(lab: Lab, calm: list[Any]) -> None:
    experiment = lab.client.create_experiment(config(), EXAMPLE)
    until("the first trials", lambda: made(experiment, 4), 60)
    pid = lab.cluster.pid("master")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until("trials after the kill", lambda: made(experiment, 5), 90)
    first = experiment.reload().view.search_task
    assert first is not None
    lab.client.get_task(first).kill()
    lab.completed(experiment, 120)
    assert points(experiment) == calm
    assert experiment.reload().view.search_task != first


def test_class_that_raises_pauses_the_search_which_continues_once_mended(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text((EXAMPLE / "train.py").read_text(encoding="utf-8"))
    (tmp_path / "careless.py").write_text(RAISES)
    experiment = lab.client.create_experiment(config(entrypoint="careless:Careless", options={}), tmp_path)
    until("the pause", lambda: experiment.reload().state is ExperimentState.PAUSED, 60)
    card = experiment.view.failure
    assert card is not None
    assert card.message.startswith("careless.py, line 11, in on_trial_closed: KeyError: 'point' (event ")
    assert card.log_tail == ["careless.py:11 in on_trial_closed", '    return best["point"]']
    assert f"det search code {experiment.id} FOLDER" in (card.hint or "")
    assert card.command == f"det experiment activate {experiment.id}"
    (tmp_path / "careless.py").write_text(RAISES.replace('best["point"]', "[]"))
    experiment.replace_search_code(tmp_path)
    experiment.activate()
    lab.completed(experiment, 60)
    assert len(experiment.list_trials()) == 1
