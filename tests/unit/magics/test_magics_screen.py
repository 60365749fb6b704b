"""An output of a cell that is replaced in place, whenever the cell is interrupted."""

import signal
import threading

import pytest
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets import Any, List

from detlab.schemas.taskwire import TaskView
from detlab.schemas.wire import CurvesView, ExperimentView
from detlab_magics.borrowed.running import StatusLine
from detlab_magics.view.screen import ScreenOutput, TextScreen
from detlab_magics.view.state import ViewState

TASK = {"id": "cell-1", "kind": "cell", "name": "x", "state": "ACTIVE", "owner": "ada", "slots": []}
EXPERIMENT = ExperimentView(id=1, name="x", owner="ada", state="ACTIVE", metric="loss", trials_total=2)


class Interrupting(DisplayPublisher):
    """Keeps what a front end would get; the interrupt comes when it has been sent, before the sender goes on."""

    sent = List()
    interrupt = Any(False)

    def publish(self, data, **more):
        self.sent.append((bool(more.get("update")), data["text/plain"]))
        if self.interrupt:
            signal.raise_signal(signal.SIGINT)


@pytest.fixture
def publisher():
    shell = InteractiveShell.instance()
    shell.display_pub = found = Interrupting()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield found
    signal.signal(signal.SIGINT, before)
    InteractiveShell.clear_instance()


def test_an_interrupt_at_the_first_display_makes_no_second_output(publisher):
    """Found in a cell that waited in the queue: its line stood there twice when it was interrupted at once."""
    output, publisher.interrupt = ScreenOutput(), True
    with pytest.raises(KeyboardInterrupt):
        output.put({"text/plain": "waits"})
    publisher.interrupt = False
    output.put({"text/plain": "canceled"})
    assert publisher.sent == [(False, "waits"), (True, "canceled")]


def shown_by_a_status_line():
    line = StatusLine()
    return lambda: line.tell(TaskView(**TASK))


def shown_by_a_screen():
    screen, state = TextScreen(), ViewState.start(CurvesView(cursor=1, experiment=EXPERIMENT))
    return lambda: screen.paint(state)


@pytest.mark.parametrize("of", [shown_by_a_status_line, shown_by_a_screen])
def test_what_is_shown_again_after_an_interrupt_replaces_what_was_shown(publisher, of):
    show, publisher.interrupt = of(), True
    with pytest.raises(KeyboardInterrupt):
        show()
    publisher.interrupt = False
    show()
    assert [update for update, _ in publisher.sent] == [False, True]


def test_the_interrupt_that_waited_is_the_callers(publisher):
    came = []
    signal.signal(signal.SIGINT, lambda *_event: came.append(len(publisher.sent)))
    publisher.interrupt = True
    ScreenOutput().put({"text/plain": "waits"})
    assert came == [1]
    signal.raise_signal(signal.SIGINT)
    assert came == [1, 1]


def test_other_threads_paint_as_well(publisher):
    output = ScreenOutput()
    for line in ("one", "two"):
        thread = threading.Thread(target=output.put, args=({"text/plain": line},))
        thread.start()
        thread.join()
    assert publisher.sent == [(False, "one"), (True, "two")]
