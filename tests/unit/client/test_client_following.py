"""Streams through faults, and waiting for the end, against a real socket."""

import asyncio
import threading
import time

import pytest

from detlab.client.aclient import AsyncClient
from detlab.client.client import Client
from detlab.errors import DetlabError, NotFound
from detlab.schemas.wire import CurvesView, Event, ExperimentState, FailureView, TrialState
from testbed.fake_master.api import ApiFault, FakeMaster


def numbered(master: FakeMaster, experiment_id: int, count: int) -> None:
    for n in range(count):
        master.publish("metrics", experiment_id, {"group": "training", "steps_completed": n}, trial_id=1)


@pytest.mark.parametrize("kind", ["cut", "cut_mid_line"])
def test_a_stream_goes_on_through_disconnects(master: FakeMaster, client: Client, kind: str) -> None:
    master.add_experiment()
    numbered(master, 1, 20)
    master.update_experiment(1, state=ExperimentState.COMPLETED)
    for lines in (3, 0, 7):
        master.faults.append(ApiFault("GET", "experiments/1/stream", kind, lines=lines))
    master.faults.append(ApiFault("GET", "experiments/1/stream", "unavailable"))
    master.faults.append(ApiFault("GET", "experiments/1/stream", "no_route"))
    told: list[float] = []
    events = list(client.get_experiment(1).stream(after=0, notice=lambda _, pause: told.append(pause)))
    assert [event.id for event in events] == list(range(1, 23))
    assert [event.data["steps_completed"] for event in events if event.kind == "metrics"] == list(range(20))
    assert told


async def test_the_asynchronous_stream_goes_on_too(master: FakeMaster, aclient: AsyncClient) -> None:
    master.add_experiment()
    numbered(master, 1, 20)
    master.update_experiment(1, state=ExperimentState.COMPLETED)
    master.faults.append(ApiFault("GET", "experiments/1/stream", "cut_mid_line", lines=5))
    experiment = await aclient.get_experiment(1)
    events = [event async for event in experiment.stream(after=0)]
    assert [event.id for event in events] == list(range(1, 23))
    assert experiment.state is ExperimentState.COMPLETED


def test_a_cursor_that_is_too_old_gets_a_fresh_snapshot(master: FakeMaster, client: Client) -> None:
    master.add_experiment()
    numbered(master, 1, 5)
    master.oldest = 4
    stream = client.get_experiment(1).stream(after=1)
    first = next(stream)
    assert first.kind == "resync"
    snapshot = CurvesView.model_validate(first.data)
    assert (snapshot.cursor, snapshot.experiment.id) == (6, 1)
    numbered(master, 1, 1)
    master.update_experiment(1, state=ExperimentState.CANCELED)
    assert [event.id for event in stream] == [7, 8]


def test_watching_begins_with_the_snapshot(master: FakeMaster, client: Client) -> None:
    master.add_experiment()
    watched = client.get_experiment(1).watch()
    assert isinstance(next(watched), CurvesView)
    numbered(master, 1, 1)
    event = next(watched)
    assert isinstance(event, Event)
    assert event.kind == "metrics"
    watched.close()


def test_watching_something_that_has_ended_is_one_snapshot(master: FakeMaster, client: Client) -> None:
    master.add_experiment(state=ExperimentState.COMPLETED)
    assert [type(item) for item in client.get_experiment(1).watch()] == [CurvesView]


def test_a_stream_that_starts_after_the_end_still_ends(master: FakeMaster, client: Client) -> None:
    master.add_experiment(state=ExperimentState.COMPLETED)
    assert list(client.get_experiment(1).stream(after=1)) == []


def test_waiting_ends_with_the_experiment(master: FakeMaster, client: Client) -> None:
    master.add_experiment()
    experiment = client.get_experiment(1)
    master.faults.append(ApiFault("GET", "experiments/1/stream", "unavailable"))
    ender = threading.Timer(0.1, master.update_experiment, (1,), {"state": ExperimentState.ERROR})
    ender.start()
    assert experiment.wait(timeout=30) is ExperimentState.ERROR
    ender.join()
    assert experiment.config == {"name": "digits"}


def test_waiting_ends_when_the_master_pauses_the_search_not_when_a_user_does(
    master: FakeMaster, client: Client
) -> None:
    experiment = client.get_experiment(master.add_experiment(state=ExperimentState.PAUSED).id)
    with pytest.raises(TimeoutError):
        experiment.wait(timeout=0.2)
    card = FailureView(
        kind="searcher", message="division by zero", hint="Mend it.", command="det experiment activate 1"
    )
    master.update_experiment(1, failure=card)
    assert experiment.wait(timeout=30) is ExperimentState.PAUSED
    assert experiment.view.failure == card
    with pytest.raises(DetlabError, match="experiment 1 was paused without a trial: division by zero") as told:
        experiment.await_first_trial(timeout=30)
    assert told.value.hint == "Mend it.\ndet experiment activate 1"


def test_waiting_has_a_limit(master: FakeMaster, client: Client) -> None:
    master.add_experiment()
    master.keep_alive = 60
    began = time.monotonic()
    with pytest.raises(TimeoutError, match="still ACTIVE"):
        client.get_experiment(1).wait(timeout=0.3)
    assert time.monotonic() - began < 5


async def test_waiting_asynchronously(master: FakeMaster, aclient: AsyncClient) -> None:
    master.add_experiment()
    experiment = await aclient.get_experiment(1)
    with pytest.raises(TimeoutError):
        await experiment.wait(timeout=0.2)
    await experiment.kill()
    assert await experiment.wait(timeout=30) is ExperimentState.CANCELED


def test_waiting_survives_a_master_that_is_away_when_asked(master: FakeMaster, client: Client) -> None:
    """Regression: the question after a closed stream met the outage that closed it, and ended the waiting."""
    master.add_experiment()
    master.faults.append(ApiFault("GET", "experiments/1/stream", "cut", lines=0))
    experiment = client.get_experiment(1)
    master.faults.extend([ApiFault("GET", "experiments/1$", "unavailable")] * 6)
    numbered(master, 1, 1)
    ender = threading.Timer(0.2, master.update_experiment, (1,), {"state": ExperimentState.COMPLETED})
    ender.start()
    assert experiment.wait(timeout=30) is ExperimentState.COMPLETED
    ender.join()


def test_the_first_trial_is_awaited(master: FakeMaster, client: Client) -> None:
    master.add_experiment()
    maker = threading.Timer(0.1, master.add_trial, (1,))
    maker.start()
    assert client.get_experiment(1).await_first_trial(timeout=30).id == 1
    maker.join()
    with pytest.raises(TimeoutError):
        client.get_experiment(master.add_experiment().id).await_first_trial(timeout=0.1)


def test_log_following_ends_with_the_trial(master: FakeMaster, client: Client) -> None:
    master.add_trial(master.add_experiment().id)
    for n in range(5):
        master.log(1, f"line {n}")
    master.faults.append(ApiFault("GET", "trials/1/logs/stream", "cut_mid_line", lines=2))

    def end() -> None:
        master.log(1, "the last")
        master.update_trial(1, state=TrialState.COMPLETED)

    ender = threading.Timer(0.1, end)
    ender.start()
    lines = [line.text for line in client.get_trial(1).iter_logs(follow=True, after=1)]
    ender.join()
    assert lines == [*(f"line {n}" for n in range(1, 5)), "the last"]


def test_an_experiment_deleted_while_it_is_waited_for(master: FakeMaster, client: Client) -> None:
    master.add_experiment()

    def delete() -> None:
        master.await_request("GET", "experiments/1/stream")
        with master.changed:
            # All that a master says of it by then.
            master.publish("experiment", 1, {"id": 1, "state": "DELETED", "owner": "ada"})
            del master.experiments[1]

    deleter = threading.Thread(target=delete)
    deleter.start()
    assert client.get_experiment(1).wait(timeout=30) is ExperimentState.DELETED
    deleter.join()


def test_an_experiment_deleted_right_after_its_end_is_said_to_have_ended(master: FakeMaster, client: Client) -> None:
    """Its end was heard, and the question that followed found nothing: that was the answer to the waiting."""
    master.add_experiment()

    def end() -> None:
        master.await_request("GET", "experiments/1/stream")
        with master.changed:
            master.update_experiment(1, state=ExperimentState.COMPLETED)
            del master.experiments[1]

    ender = threading.Thread(target=end)
    ender.start()
    assert client.get_experiment(1).wait(timeout=30) is ExperimentState.COMPLETED
    ender.join()


async def test_an_experiment_that_is_gone_before_its_end_was_heard_is_an_error_in_words(
    master: FakeMaster, aclient: AsyncClient
) -> None:
    master.add_experiment()
    experiment = await aclient.get_experiment(1)
    master.faults.append(ApiFault("GET", "experiments/1/stream", "cut", lines=0))
    waiting = asyncio.create_task(experiment.wait(timeout=30))
    await asyncio.to_thread(master.await_request, "GET", "experiments/1/stream")
    del master.experiments[1]
    with pytest.raises(NotFound, match=r"was last seen ACTIVE.*deleted, or is no longer shared"):
        await waiting


def test_what_a_proxy_without_routes_says_is_not_taken_for_a_deletion(master: FakeMaster, client: Client) -> None:
    master.add_experiment()
    experiment = client.get_experiment(1)
    master.update_experiment(1, state=ExperimentState.COMPLETED)
    master.faults.append(ApiFault("GET", "experiments/1/curves", "no_route"))
    with pytest.raises(NotFound, match="HTTP status 404: Not Found"):
        experiment.wait(timeout=30)
    assert experiment.wait(timeout=30) is ExperimentState.COMPLETED
