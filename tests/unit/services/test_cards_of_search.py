"""The card of a trial whose report the search cannot use."""

from __future__ import annotations

from detlab_hub.services.failures.cards import of_search
from detlab_hub.store.tables import ExperimentRow, TrialRow


def card(report: list[str]) -> str:
    config = {
        "searcher": {"time_metric": "epoch", "metrics": [{"name": "loss"}, {"name": "latency"}, {"name": "size"}]}
    }
    experiment = ExperimentRow(id=1, config=config, metric="loss", searcher_name="random")
    trial = TrialRow(id=7, request_id="r", experiment_id=1)
    return of_search(experiment, trial, "trial r lacks a metric", report).hint or ""


def test_the_hint_names_the_objectives_that_were_missing() -> None:
    assert "needs: its metric 'latency' as a number" in card(["epoch", "loss", "size"])
    assert "needs: its metrics 'latency' and 'size' as numbers" in card(["epoch", "loss"])
