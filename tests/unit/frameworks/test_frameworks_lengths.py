"""How long a search trains, from its config, beside what the code says."""

from __future__ import annotations

from typing import Any

import pytest

from detlab.frameworks import FrameworkError, SearchLength


@pytest.mark.parametrize(
    ("searcher", "length"),
    [
        ({"max_length": {"batches": 100}}, SearchLength(100, "batches")),
        ({"max_length": {"epochs": 3}}, SearchLength(3, "epochs")),
        ({"max_length": 100}, SearchLength(100, "batches")),
        ({"max_time": 16, "time_metric": "epochs"}, SearchLength(16, "epochs")),
        ({"max_time": 16, "time_metric": "epoch"}, SearchLength(16, "epochs")),
        ({"max_time": 400, "time_metric": "batches"}, SearchLength(400, "batches")),
        ({"max_time": 400, "time_metric": "steps"}, SearchLength(400, "batches")),
        ({"max_time": 60, "time_metric": "minutes"}, None),
        ({"max_length": {"records": 100}}, None),
        ({"name": "single", "metric": "loss"}, None),
        ({}, None),
    ],
)
def test_the_length_of_a_search(searcher: dict[str, Any], length: SearchLength | None) -> None:
    assert SearchLength.of(searcher) == length


@pytest.mark.parametrize(
    ("length", "batches", "epochs"), [(SearchLength(100, "batches"), 100, None), (SearchLength(3, "epochs"), None, 3.0)]
)
def test_code_of_the_same_length_is_fine(length: SearchLength, batches: float | None, epochs: float | None) -> None:
    length.check(batches=batches, epochs=epochs, setting="fit(epochs=…)", resumed=False)


@pytest.mark.parametrize(
    ("batches", "epochs", "said"),
    [
        (99, None, "99 batches"),
        (None, 100, "100 epochs"),
        (100, 3, "100 batches and 3 epochs"),
        (None, None, "no limit"),
    ],
)
def test_code_of_another_length_is_refused_at_first_and_told_of_later(
    batches: float | None, epochs: float | None, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    length = SearchLength(100, "batches")
    with pytest.raises(FrameworkError) as caught:
        length.check(batches=batches, epochs=epochs, setting="fit(epochs=…)", resumed=False)
    assert f"the search trains for 100 batches, and the code for {said}" in str(caught.value)
    assert "Set fit(epochs=…) to 100 batches" in str(caught.value)
    length.check(batches=batches, epochs=epochs, setting="fit(epochs=…)", resumed=True)
    assert said in caplog.text
