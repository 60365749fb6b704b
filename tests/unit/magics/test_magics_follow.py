"""Following: one thread reads, one paints, at most so often; what breaks is told and nothing is lost."""

import threading
import time

import pytest

from detlab.errors import ClusterUnreachable
from detlab.schemas.wire import CurvesView, Event, ExperimentView
from detlab_magics.view.follow import ExperimentWatch
from detlab_magics.view.text import progress_line

EXPERIMENT = {"id": 1, "name": "x", "owner": "ada", "state": "ACTIVE", "metric": "a,b", "trials_total": 2}


class Script:
    """An experiment whose stream is a generator of the test's own."""

    def __init__(self, play):
        self.play = play
        self.asked = {}

    def watch(self, **asked):
        self.asked = asked
        yield CurvesView(cursor=1, experiment=ExperimentView(**EXPERIMENT))
        yield from self.play(asked["notice"])


def ended(number):
    return Event(id=number, kind="experiment", experiment_id=1, data={**EXPERIMENT, "state": "COMPLETED"})


def test_many_events_make_few_paintings_and_the_last_is_the_end():
    def play(_notice):
        for number in range(2, 500):
            yield Event(id=number, kind="experiment", experiment_id=1, data={**EXPERIMENT, "progress": number / 500})
            time.sleep(0.001)
        yield ended(500)

    painted = []
    watch = ExperimentWatch(Script(play), "loss", lambda state: painted.append(state.cursor), seconds=0.1)
    begun = time.monotonic()
    watch.start()
    state = watch.paint_until_end()
    assert state.ended
    assert painted[-1] == 500
    assert len(painted) <= (time.monotonic() - begun) / 0.1 + 2


def test_a_break_is_told_while_it_lasts():
    seen, go_on = [], threading.Event()

    def play(notice):
        notice(ClusterUnreachable("gone"), 1.0)
        assert go_on.wait(10)
        yield ended(2)

    def paint(state):
        seen.append(progress_line(state))
        if "no answer" in seen[-1]:
            go_on.set()

    watch = ExperimentWatch(Script(play), "loss", paint, seconds=0.01)
    watch.start()
    watch.paint_until_end()
    assert any(line == "0/2 trials · no answer from the cluster, trying again" for line in seen)
    assert "no answer" not in seen[-1]


def test_a_stream_that_breaks_for_good_raises_after_what_was_known_is_painted():
    def play(_notice):
        raise ClusterUnreachable("gone for good")
        yield

    painted = []
    watch = ExperimentWatch(Script(play), "loss", painted.append, seconds=0.01)
    watch.start()
    with pytest.raises(ClusterUnreachable):
        watch.paint_until_end()
    assert painted
    assert watch.state is not None


def test_a_metric_name_with_a_comma_is_not_asked_for_by_name():
    """Regression: the master splits `names` at commas, so the live view of such a metric stayed empty."""
    script = Script(lambda _notice: iter([ended(2)]))
    watch = ExperimentWatch(script, "a,b", lambda state: None, seconds=0.01)
    watch.start()
    watch.paint_until_end()
    assert script.asked["name"] is None
    assert script.asked["group"] == "validation"


def test_a_cell_that_waits_ends_when_the_master_pauses_the_search():
    over = threading.Event()
    failure = {"kind": "searcher", "message": "division by zero", "hint": "Mend it."}

    def play(_notice):
        paused = {**EXPERIMENT, "state": "PAUSED"}
        yield Event(id=2, kind="experiment", experiment_id=1, data=paused)
        yield Event(id=3, kind="experiment", experiment_id=1, data={**paused, "failure": failure})
        over.wait(30)

    watch = ExperimentWatch(Script(play), "loss", lambda state: None, seconds=0.01)
    watch.start()
    try:
        state = watch.paint_until_end(settles=True)
        assert not over.is_set()
        assert (state.ended, state.settled, state.cursor) == (False, True, 3)
    finally:
        over.set()
