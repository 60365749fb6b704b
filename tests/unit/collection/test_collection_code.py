"""When code goes that nothing runs any more."""

from __future__ import annotations

import pytest

from detlab_hub.core.collection import code_goes


@pytest.mark.parametrize(
    ("unused_since", "now", "keep", "goes"),
    [
        (None, 1e9, 1.0, False),
        (100.0, 109.9, 10.0, False),
        (100.0, 110.0, 10.0, True),
        (100.0, 1e9, 0.0, False),
        (200.0, 100.0, 10.0, False),
    ],
)
def test_code_goes_when_its_time_is_over(unused_since: float | None, now: float, keep: float, goes: bool) -> None:
    assert code_goes(unused_since, now, keep) is goes
