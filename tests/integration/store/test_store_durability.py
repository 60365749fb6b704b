"""kill -9 of a master: every acknowledged write is there afterwards, and the next master starts at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from detlab_hub.store import LeaseHeld, Store
from detlab_hub.store.queries import events
from detlab_hub.store.queries.metrics import curves as metrics
from detlab_hub.store.tables import TrialRow
from testbed.databases.store_rows import add_experiment, add_trial

WRITER = """
import sys
from detlab_hub.store import Store
from detlab_hub.store.queries import events
from detlab_hub.store.queries.metrics import curves as metrics
from detlab_hub.store.tables import TrialRow

store = Store.open(sys.argv[1], holder="doomed", lease_ttl=3600)
trial_id = int(sys.argv[2])
step = store.read_sync(lambda s: s.get(TrialRow, trial_id)).steps_completed
while True:
    step += 1

    def write(s):
        s.get(TrialRow, trial_id).steps_completed = step
        metrics.insert_report(s, trial_id, 1, "training", step, 0.0, {"loss": step * 0.5, "note": str(step)})
        return events.append(s, "metrics", 0.0, 1, trial_id, {"step": step})

    store.write_sync(write)
    sys.stdout.write(f"{step}\\n")
    sys.stdout.flush()
"""


def test_every_acknowledged_write_survives_kill_9(db_url: str) -> None:
    store = Store.open(db_url, holder="first")
    trial_id = store.write_sync(lambda s: add_trial(s, add_experiment(s)))
    store.close()
    acknowledged = 0
    for wanted in (7, 23, 40):
        acknowledged = run_and_kill(db_url, trial_id, wanted, acknowledged)
        # The dead master's lease would last an hour yet.
        store = Store.open(db_url, holder="next")
        try:
            check_rows(store, trial_id, acknowledged)
        finally:
            store.close()


def run_and_kill(db_url: str, trial_id: int, wanted: int, already: int) -> int:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, db_url, str(trial_id)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        last = already
        for _ in range(wanted):
            last = int(process.stdout.readline())
        with pytest.raises(LeaseHeld, match="doomed"):
            Store.open(db_url, holder="too early")
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
        rest = [int(line) for line in process.stdout.read().split("\n")[:-1]]
        return rest[-1] if rest else last


def check_rows(store: Store, trial_id: int, acknowledged: int) -> None:
    row = store.read_sync(lambda s: s.get(TrialRow, trial_id))
    assert row is not None
    # The last write may have been committed and killed before it could say so, but it is whole then.
    assert row.steps_completed in {acknowledged, acknowledged + 1}
    total = row.steps_completed
    (curve,) = store.read_sync(lambda s: metrics.series(s, [trial_id], max_points=None))
    assert curve.steps == list(range(1, total + 1))
    assert curve.values == [step * 0.5 for step in curve.steps]
    summary = store.read_sync(lambda s: metrics.summaries(s, trial_id))["training"]["loss"]
    assert (summary.count, summary.last) == (total, total * 0.5)
    found = store.read_sync(lambda s: events.after(s, 0, 10_000))
    assert [event.data["step"] for event in found] == curve.steps
    notes = store.read_sync(lambda s: metrics.values(s, trial_id, limit=10_000))
    assert [note["value"] for note in notes] == [str(step) for step in curve.steps]
