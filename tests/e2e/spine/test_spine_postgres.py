"""PostgreSQL by one setting."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psycopg
import pytest
from spine_lab import asha, lab_of, until

from detlab.errors import DetlabError
from testbed.cluster import running_cluster
from testbed.databases import postgres

pytestmark = [pytest.mark.hub, pytest.mark.postgres, pytest.mark.soak]


def test_a_search_runs_on_postgresql_by_one_setting_and_survives_kill_9_of_the_master(
    postgres_server: postgres.Server, tmp_path: Path
) -> None:
    postgres_server.sql("CREATE DATABASE spine")
    try:
        setting = f"c.DetHub.db_url = {postgres_server.url('spine')!r}\n"
        with running_cluster(tmp_path, slots=2, config=setting) as cluster, lab_of(cluster) as lab:
            search = lab.submit(asha("toy.py", 3, 6, rungs=2, hparams={"steps": 400}))
            until("a first report", lambda: any(trial.view.steps_completed for trial in search.list_trials()), 20)
            master = cluster.pid("master")
            assert master is not None
            os.kill(master, signal.SIGKILL)

            def back() -> bool:
                try:
                    return lab.client.get_cluster().slots_total == 2
                except DetlabError:
                    return False

            until("the master answers again", lambda: cluster.pid("master") not in (None, master) and back(), 30)
            ended = lab.completed(search, 60)
            trials = ended.list_trials()
            assert len(trials) == 3
            for trial in trials:
                assert trial.view.restarts == 0
                steps = lab.steps(trial)
                assert steps == list(range(1, len(steps) + 1))
            assert trials_in(postgres_server) == 3
            assert not (cluster.folder / "db" / "detlab.sqlite").exists()
            password = postgres_server.password
            logs = "".join(path.read_text() for path in (cluster.folder / "logs").glob("*.log"))
            assert password not in logs
    finally:
        postgres_server.sql("DROP DATABASE IF EXISTS spine WITH (FORCE)")


def trials_in(server: postgres.Server) -> int:
    """How many trials are in the database, asked without detlab."""
    with psycopg.connect(server.url("spine")) as connection:
        row = connection.execute("SELECT count(*) FROM trials").fetchone()
    assert row is not None
    return int(row[0])
