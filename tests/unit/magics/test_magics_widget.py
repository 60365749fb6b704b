"""The live view's widget: pages hear things in the order in which they came to be."""

import importlib.util
import shutil
import threading

import pytest

from detlab.schemas.wire import CurvesView, Event, ExperimentView, TrialView
from detlab_magics.view import ViewState, widget
from detlab_magics.view.widget import LiveView

WHILE = 0.3
"""Seconds that a message takes to leave; long enough for another thread to be faster."""


@pytest.fixture
def state():
    experiment = ExperimentView(
        id=7, name="digits", owner="ada", state="ACTIVE", metric="loss", trials_total=1, created_at=1000.0
    )
    trial = TrialView(id=1, index=0, experiment_id=7, request_id="r1", state="ACTIVE", hparams={})
    return ViewState.start(CurvesView(cursor=10, experiment=experiment, trials=[trial]))


def report(state, step):
    data = {"group": "validation", "steps_completed": step, "run": 1, "metrics": {"loss": 0.5}}
    assert state.apply([Event(id=10 + step, kind="metrics", experiment_id=7, trial_id=1, data=data)])
    return state


def asks_for_the_whole(view):
    view._asked(view, {"need": "snapshot"}, [])


def asks_for_the_state(view):
    view._handle_msg({"content": {"data": {"method": "request_state"}}})


@pytest.mark.parametrize("asks", [asks_for_the_whole, asks_for_the_state])
def test_an_increment_made_while_a_snapshot_leaves_is_sent_after_it(state, asks, monkeypatch):
    """A page that got the older snapshot last stayed at it: the last points of an ended search were missing."""
    view, lengths = LiveView(state), []
    leave = view._send

    def slowly(message, buffers=None):
        content = message.get("content") or message["state"]["snapshot"]
        if threading.current_thread() is threading.main_thread():
            painter.start()
            painter.join(WHILE)
        lengths.append(content["lengths"])
        leave(message, buffers)

    monkeypatch.setattr(view, "_send", slowly)
    painter = threading.Thread(target=lambda: view.push(report(state, 1)))
    asks(view)
    painter.join()
    assert lengths == [[], [1]]
    view.close()


def test_who_asks_after_the_end_gets_the_still_view(state, monkeypatch):
    """A page that was opened again kept a widget that its kernel took along when it ended."""
    view, sent = LiveView(state), []
    monkeypatch.setattr(view, "_send", lambda message, buffers=None: sent.append(message.get("content")))
    asks_for_the_whole(view)
    assert "still" not in str(sent)
    view.freeze(report(state, 1), {"text/html": "picture"})
    asks_for_the_whole(view)
    assert [one["still"] for one in sent if "still" in one] == [{"text/html": "picture"}] * 2
    view.close()


def test_a_checkout_on_a_machine_without_node_has_no_widget_and_says_so(tmp_path):
    """Where `widget.js` was never built the module could not even be imported, and no live cell fell back to text."""
    copy = tmp_path / "detlab_magics" / "view" / "widget.py"
    copy.parent.mkdir(parents=True)
    shutil.copy(widget.__file__, copy)
    spec = importlib.util.spec_from_file_location("widget_without_node", copy)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert not module.available()
