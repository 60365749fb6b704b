"""What `det experiment create -f` and `wait` say of an experiment that has no slots yet."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from detlab.cli.output.experiment_progress import tell_waiting
from detlab.schemas.wire import ExperimentView


class Waiting:
    """An experiment whose view changes with each look."""

    def __init__(self, *views: dict[str, Any]) -> None:
        base = {"id": 7, "name": "n", "owner": "ada", "state": "ACTIVE"}
        self._views = [ExperimentView.model_validate({**base, **view}) for view in views]
        self.looks = 0

    def reload(self) -> Any:
        view = self._views[min(self.looks, len(self._views) - 1)]
        self.looks += 1
        return SimpleNamespace(view=view)


@pytest.mark.parametrize(
    ("views", "said", "looks"),
    [
        ([{"pending_reason": "no agent enforces gov.dp@1\x1b[2J"}], "waiting: no agent enforces gov.dp@1", 1),
        ([{}, {"pending_reason": "needs 2 slots"}], "waiting: needs 2 slots", 2),
        ([{"trials": {"RUNNING": 1}}], "", 1),
        ([{"state": "COMPLETED"}], "", 1),
        ([{}], "", 2),
    ],
)
def test_why_an_experiment_waits_is_said_once(
    views: list[dict[str, Any]], said: str, looks: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A followed experiment that no agent could run said nothing for a quarter of an hour."""
    found = Waiting(*views)
    tell_waiting(found, (0.0, 0.0))  # type: ignore[arg-type]
    told = capsys.readouterr().err
    assert told.startswith(said)
    assert (told == "") == (said == "")
    assert "\x1b" not in told
    assert found.looks == looks
