"""Our halves of the benches of the master run and measure something; how fast is not judged here."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.cluster import Cluster

pytestmark = [pytest.mark.hub, pytest.mark.soak]

BENCH = Path(__file__).resolve().parents[3] / "bench"
QUICK = argparse.Namespace(quick=True, rounds=1, no_peers=True)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))


def test_ingestion_is_read_back_after_kill_9(bench: None, cluster: Cluster, tmp_path: Path) -> None:
    import ingest

    with ingest.database_of("sqlite", tmp_path) as database:
        found = ingest.measure(cluster, tmp_path, database, QUICK)
    assert found.read_back == 5 * ingest.ROWS + 8 * 2 * ingest.ROWS + 20
    rows = {row.label: row for row in ingest.figures("sqlite", found, "left out")}
    assert rows["detlab, sqlite, 8 clients"].value
    assert rows["  MLflow log_batch, sqlite, 1 client"].note == "left out"


def test_a_grown_search_goes_on(bench: None, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import search

    monkeypatch.setattr(search, "SLOTS", 4)
    found = search.measure(cluster, tmp_path / "master", 60, 16, 1, ())
    (label, *_) = search.figures(found, {}, "left out")
    assert label.value


def test_one_report_costs_a_loop_something() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCH / "client.py"), "--quick", "--no-peers", "--json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "detlab report_metrics, one metric" in done.stdout
    assert done.stderr == ""
