"""kill -9 of the cluster's parts during a search, and `det down` in the middle of one."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from spine_lab import Lab, alive, asha, following, lab_of, single, task_dir, until

from detlab.client.resources import Experiment, Trial
from detlab.errors import ClusterUnreachable, DetlabError
from detlab.schemas.wire import Event, ExperimentState
from testbed.cluster import Cluster, running_cluster

pytestmark = pytest.mark.hub


@pytest.fixture(scope="module")
def fragile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of its own, in a closed folder, whose parts are killed."""
    with running_cluster(tmp_path_factory.mktemp("fragile"), slots=3) as running:
        yield running


@pytest.fixture(scope="module")
def lab(fragile: Cluster) -> Iterator[Lab]:
    """Its operator."""
    with lab_of(fragile) as found:
        yield found


@pytest.fixture(scope="module")
def witness(lab: Lab) -> Iterator[Trial]:
    """A trial that trains through everything that happens in this module."""
    hparams = {"steps": 1_000_000, "every": 50, "save_every": 40}
    experiment = lab.submit(single("toy.py", hparams=hparams, name="witness"))
    yield lab.at_step(lab.first_trial(experiment), 3)
    experiment.kill()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """What a test opens and leaves to its end."""
    with ExitStack() as found:
        yield found


def small_search(name: str) -> dict[str, Any]:
    """One trial at a time, so that the order of reports, and with it every decision, follows from the seed."""
    return asha("toy.py", 6, 8, at_once=1, rungs=3, hparams={"steps": 400, "pause": 0.03}, name=name)


def decisions(lab: Lab, experiment: Experiment) -> list[Any]:
    """What the searcher decided, by its journal, in order."""
    query = "SELECT decisions FROM searcher_journal WHERE experiment_id = ? ORDER BY seq"
    journal = [json.loads(row["decisions"]) for row in lab.rows(query, experiment.id)]
    return [decided for decided in journal if decided]


def outcome(experiment: Experiment) -> list[tuple[Any, ...]]:
    """How a search went, trial by trial."""
    return [
        (trial.view.index, trial.view.request_id, trial.hparams, trial.view.seed, trial.state, trial.view.end_reason)
        for trial in experiment.list_trials()
    ]


def pids(cluster: Cluster, trial: Trial) -> tuple[int, int]:
    """Launcher and user's process of a running trial."""
    identity = json.loads((task_dir(cluster, trial) / "launcher.json").read_text())
    return int(identity["pid"]), int(identity["pgid"])


def live_tasks(cluster: Cluster, experiment: Experiment) -> list[tuple[int, int]]:
    """The processes of the trials that train now."""
    found = []
    for trial in experiment.list_trials():
        if trial.view.display_state == "RUNNING" and trial.view.steps_completed:
            with suppress(FileNotFoundError, ValueError):  # it is just leaving
                found.append(pids(cluster, trial))
    return found


def kill_9(cluster: Cluster, part: str) -> None:
    """Kill a part and wait until its successor runs."""
    before = cluster.pid(part)
    assert before is not None
    os.kill(before, signal.SIGKILL)
    until(f"a new {part}", lambda: cluster.pid(part) not in (None, before), 20)


def answers(lab: Lab) -> bool:
    """Whether the master answers through the proxy and its agent is there."""
    try:
        return lab.client.get_cluster().slots_total == 3
    except DetlabError:
        return False


def progress(lab: Lab, witness: Trial) -> None:
    """The witness still trains, with the same processes, never restarted."""
    now = lab.trial(witness)
    lab.at_step(witness, now.view.steps_completed + 3, 20)
    assert (now.view.run, now.view.restarts) == (1, 0)


def test_i8_kill_9_of_the_master_during_the_search_three_times_and_it_ends_the_same(
    fragile: Cluster, lab: Lab, witness: Trial, stack: ExitStack
) -> None:
    calm = lab.submit(small_search("calm"))
    stormy = lab.submit(small_search("stormy"))  # at the same time, on the other slot
    seen_live = follow(lab, stormy)
    waiter = stack.enter_context(following(fragile, "e", "wait", str(stormy.id)))
    for _ in range(3):
        seen = sum(trial.view.steps_completed for trial in stormy.list_trials())

        def moved(seen: int = seen) -> bool:
            return sum(trial.view.steps_completed for trial in stormy.list_trials()) > seen

        until("the search goes on", moved, 20)
        kill_9(fragile, "master")
        until("the master answers again", lambda: answers(lab), 30)
    ended, reference = lab.completed(stormy, 60), lab.completed(calm, 60)
    assert outcome(ended) == outcome(reference)
    decided = decisions(lab, ended)
    assert decided == decisions(lab, reference)
    assert len(decided) >= 6
    for experiment in (ended, reference):
        for trial in experiment.list_trials():
            assert (trial.view.restarts, trial.view.run) == (0, 1)
            steps = lab.steps(trial)
            assert steps == list(range(1, len(steps) + 1)), "no gap and no double"
    progress(lab, witness)
    # who watched it all the time saw every report once, in order, and was told the end
    live: dict[int, list[int]] = {}
    for event in seen_live.result(timeout=20):
        if event.kind == "metrics" and event.data["group"] == "training":
            live.setdefault(event.trial_id or 0, []).append(event.data["steps_completed"])
    assert live == {trial.id: lab.steps(trial) for trial in ended.list_trials()}
    output, errors = waiter.communicate(timeout=30)
    assert waiter.returncode == 0, output + errors


def follow(lab: Lab, experiment: Experiment) -> Future[list[Event]]:
    """Watch the stream of an experiment from its first event to its end, in a thread."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(lambda: list(experiment.stream(0)))
    pool.shutdown(wait=False)
    return future


def test_kill_9_of_the_agent_leaves_tasks_running_and_they_are_readopted(
    fragile: Cluster, lab: Lab, witness: Trial, meeting_place: Path
) -> None:
    before = pids(fragile, witness)
    kill_9(fragile, "agent")
    until("the agent is back", lambda: answers(lab), 30)
    assert pids(fragile, witness) == before
    assert all(alive(pid) for pid in before)
    progress(lab, witness)
    # a task that ends while no agent runs is still reported as it ended
    quick = lab.submit(single("toy.py", hparams={"steps": 8, "hold_until": str(meeting_place / "agentless")}))
    ending = lab.at_step(lab.first_trial(quick), 7)
    _, user = pids(fragile, ending)
    agent = fragile.pid("agent")
    assert agent is not None
    os.kill(agent, signal.SIGKILL)
    (meeting_place / "agentless").touch()
    until("it has ended", lambda: not alive(user), 10)
    (ended,) = lab.completed(quick, 30).list_trials()
    assert (ended.view.restarts, ended.view.run) == (0, 1)
    assert lab.steps(ended) == list(range(1, 9))
    # re-adopted, not just still there: the agent can end it
    other = lab.submit(single("never_exits.py"))
    trial = lab.at_step(lab.first_trial(other), 1)
    _, user = pids(fragile, trial)
    kill_9(fragile, "agent")
    until("the agent is back", lambda: answers(lab), 30)
    other.kill()
    assert lab.finish(other, 20).state is ExperimentState.CANCELED
    assert not alive(user)
    (slot,) = lab.slots_of(witness.get_experiment())
    assert slot


def test_an_agent_that_stands_still_below_the_lost_threshold_is_not_shot(
    fragile: Cluster, lab: Lab, witness: Trial
) -> None:
    before, agent = pids(fragile, witness), fragile.pid("agent")
    assert agent is not None

    def state() -> str:
        (view,) = lab.client.list_agents()
        return view.state

    os.kill(agent, signal.SIGSTOP)
    try:
        until("it is suspect", lambda: state() == "suspect", 20)
        progress(lab, witness)
    finally:
        os.kill(agent, signal.SIGCONT)
    until("it is heard again", lambda: state() == "connected", 20)
    assert (fragile.pid("agent"), pids(fragile, witness)) == (agent, before)
    progress(lab, witness)


def test_kill_9_of_master_and_agent_at_once_leaves_tasks_running_and_they_are_reattached(
    fragile: Cluster, lab: Lab, witness: Trial
) -> None:
    before, parts = pids(fragile, witness), {part: fragile.pid(part) for part in ("master", "agent")}
    for pid in parts.values():
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    for part, pid in parts.items():
        until(f"a new {part}", lambda part=part, pid=pid: fragile.pid(part) not in (None, pid), 30)
    until("both are back", lambda: answers(lab), 30)
    assert pids(fragile, witness) == before
    assert all(alive(pid) for pid in before)
    progress(lab, witness)


@pytest.mark.parametrize("part", ["hub", "proxy"])
def test_kill_9_of_hub_or_proxy_is_recovered_and_trials_are_untouched(
    fragile: Cluster, lab: Lab, witness: Trial, part: str
) -> None:
    before = pids(fragile, witness)
    kill_9(fragile, part)
    until("det status says healthy", lambda: fragile.det("status").returncode == 0, 30)
    with lab_of(fragile) as fresh, fresh.api() as api:
        assert api.get("me").status_code == 200, "a healthy cluster knows its users"
    token = fragile.make_token("custom:detlab:read", "access:services!service=detlab")
    with fragile.client(token) as api:
        assert api.get("me").status_code == 200, "also those it has never heard of"
    assert pids(fragile, witness) == before
    progress(lab, witness)


def test_kill_9_of_the_supervisor_leaves_all_running_and_det_up_takes_over(
    fragile: Cluster, lab: Lab, witness: Trial
) -> None:
    before = pids(fragile, witness)
    parts = {part: fragile.pid(part) for part in ("proxy", "hub", "master", "agent")}
    supervisor = fragile.pid("supervisor")
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    until("the supervisor has ended", lambda: not alive(supervisor), 5)
    assert answers(lab)
    taken = fragile.up()
    assert taken.returncode == 0, taken.stderr
    assert {part: fragile.pid(part) for part in parts} == parts
    assert pids(fragile, witness) == before
    progress(lab, witness)


def test_i1_an_acknowledged_submit_is_never_lost_or_doubled_when_the_master_dies(fragile: Cluster, lab: Lab) -> None:
    config = single("toy.py", entrypoint="true")
    acknowledged = [lab.submit(config, activate=False).id for _ in range(2)]
    key = "the same key"
    first = lab.client.submit(config, activate=False, idempotency_key=key)
    assert first.experiment is not None
    kill_9(fragile, "master")
    until("the master answers again", lambda: answers(lab), 30)
    again = lab.client.submit(config, activate=False, idempotency_key=key)
    assert again.experiment is not None
    assert again.experiment.id == first.experiment.id
    assert not again.created
    known = [item.id for item in lab.client.list_experiments(limit=1000)]
    assert len(known) == len(set(known))
    assert {*acknowledged, first.experiment.id} <= set(known)
    for number in acknowledged:
        lab.client.get_experiment(number).kill()
    first.experiment.kill()


def test_i4_every_acknowledged_metric_is_readable_exactly_once_after_all_of_this(
    fragile: Cluster, lab: Lab, witness: Trial
) -> None:
    progress(lab, witness)
    witness.get_experiment().cancel()
    lab.finish(witness.get_experiment(), 20)
    view = lab.trial(witness).view
    assert (view.run, view.restarts) == (1, 0)
    assert lab.steps(witness) == list(range(1, view.steps_completed + 1))
    said = {int(more[0]) for _, _, more in lab.journal(witness, "asked")}
    assert said | {view.steps_completed} == set(range(1, view.steps_completed + 1)), "no line of output is lost either"


def test_det_down_in_the_middle_of_a_search_and_det_up_goes_on(fragile: Cluster, lab: Lab) -> None:
    config = small_search("interrupted")
    # Slow enough that a trial still trains when `det down` comes: its eight steps take four seconds.
    config["hyperparameters"] |= {"save_every": 1, "pause": 0.5}
    config["searcher"]["max_concurrent_trials"] = 2
    experiment = lab.submit(config)
    until("half of it", lambda: experiment.reload().view.trials.get("COMPLETED", 0) >= 2, 40)
    tasks = until("tasks to watch", lambda: live_tasks(fragile, experiment), 20)
    began = time.monotonic()
    down = fragile.down("--timeout", "20")
    assert down.returncode == 0, down.stdout + down.stderr
    assert time.monotonic() - began < 25
    assert not any(alive(pid) for task in tasks for pid in task)
    with pytest.raises(ClusterUnreachable):
        lab.client.whoami()
    up = fragile.up()
    assert up.returncode == 0, up.stdout + up.stderr
    ended = lab.completed(experiment, 60)
    trials = ended.list_trials()
    assert len(trials) == 6
    for trial in trials:
        assert trial.view.restarts == 0
        steps = lab.steps(trial)
        assert steps == list(range(1, len(steps) + 1))
    assert max(trial.view.run for trial in trials) == 2, "somebody was interrupted"


def test_a_machine_that_went_down_costs_its_trials_no_restart(fragile: Cluster, lab: Lab) -> None:
    experiment = lab.submit(single("toy.py", hparams={"steps": 60, "save_every": 5}, max_restarts=0))
    trial = lab.at_step(lab.first_trial(experiment), 12)
    task = task_dir(fragile, trial)
    everything = [fragile.pid(part) for part in ("supervisor", "agent", "master", "hub", "proxy")]
    for pid in (*everything, *pids(fragile, trial)):
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    until("all is dark", lambda: not any(alive(pid) for pid in everything if pid), 10)
    # the machine's next life: what the agent noted of the last one does not match any more
    record = task.parent / f"{task.name}.json"
    noted = json.loads(record.read_text())
    assert noted["life"]
    record.write_text(json.dumps({**noted, "life": "an earlier one"}))
    up = fragile.up()
    assert up.returncode == 0, up.stderr
    (ended,) = lab.completed(experiment, 60).list_trials()
    assert (ended.view.restarts, ended.view.run) == (0, 2)
    assert lab.steps(ended) == list(range(1, 61))
    starts = [int(more[0]) for _, _, more in lab.journal(ended, "start")]
    assert starts[0] == 0
    assert starts[1] >= 10, "from its last checkpoint"


def test_i2_a_slot_had_at_most_one_live_owner_at_any_time(lab: Lab) -> None:
    query = "SELECT slots, assigned_at, ended_at FROM allocations WHERE assigned_at IS NOT NULL"
    held: dict[str, list[tuple[float, float]]] = {}
    for row in lab.rows(query):
        for slot in json.loads(row["slots"]):
            held.setdefault(slot, []).append((row["assigned_at"], row["ended_at"]))
    assert len(held) == 3
    assert sum(len(spans) for spans in held.values()) >= 20
    for spans in held.values():
        spans.sort()
        for (_, ended), (assigned, _) in itertools.pairwise(spans):
            assert ended is not None
            assert ended <= assigned


def test_i7_every_trial_has_reached_a_terminal_state(lab: Lab) -> None:
    for experiment in lab.client.list_experiments(limit=1000):
        assert experiment.state.terminal, lab.tell(experiment)
        assert all(trial.state.terminal for trial in experiment.list_trials())
    assert lab.client.get_cluster().slots_used == 0
