"""kill -9 of every part, in turn and together, through a search that a notebook and the panel watch all the time."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
import psycopg
import pytest
from playwright.sync_api import Page, expect
from psycopg.rows import dict_row
from spine_lab import Lab, asha, lab_of, until

from detlab.client.resources import Experiment
from detlab.errors import DetlabError
from detlab.schemas.wire import TrialState
from testbed.cluster import running_cluster
from testbed.containers import docker, docker_images
from testbed.databases import postgres
from testbed.front.lab import chromium
from testbed.front.tour import Tour, log_in, start_a_notebook

pytestmark = [
    pytest.mark.hub,
    pytest.mark.browser,
    pytest.mark.postgres,
    pytest.mark.soak,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]

BETWEEN = 3.0
"""Seconds from one kill to the next."""
TOGETHER = 2
"""How often all parts are killed at once."""
MOMENTS = 90_000
"""Milliseconds after which a page shows the end at the latest."""


@dataclass
class Site:
    """A cluster on PostgreSQL whose trials run in containers, and what can be killed of it."""

    lab: Lab
    engine: docker.Engine
    database: postgres.Server
    killed: list[str] = field(default_factory=list)
    together: list[set[str]] = field(default_factory=list)
    """What died in each round in which all parts were to."""

    def kill(self, part: str) -> None:
        """SIGKILL one part, if it is there at this moment; nobody waits for its successor."""
        pids = {"trial": self.trial, "postgres": self.database.processes}.get(part, lambda: self._part(part))()
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.killed.append(part)
        if part == "engine":
            self.engine.kill("dockerd")
            self.engine.kill("containerd")
            self.killed.append(part)

    def start_again(self, part: str) -> None:
        """What a machine's init does: engine and database are not parts of the cluster."""
        if part == "engine":
            self.engine.start()
        if part == "postgres":
            self.database.start_again()

    def kill_together(self) -> None:
        """SIGKILL all parts at once, as soon as all of them are there."""
        until("every part is there", lambda: all(map(self.is_there, PARTS)), 90)
        before = len(self.killed)
        for part in PARTS:
            self.kill(part)
        self.together.append(set(self.killed[before:]))

    def is_there(self, part: str) -> bool:
        """Whether there is anything of a part that could be killed."""
        if part == "engine":
            return self.engine.answers()
        return bool({"trial": self.trial, "postgres": self.database.processes}.get(part, lambda: self._part(part))())

    def _part(self, part: str) -> list[int]:
        if part == "engine":
            return []
        pid = self.lab.cluster.pid(part)
        return [] if pid is None else [pid]

    def trial(self) -> list[int]:
        """The user's process of the trial that trains now."""
        for container in self.engine.containers():
            status, reply = self.engine.request("GET", f"/containers/{container}/top?ps_args=-eo%20pid,args")
            for pid, command in json.loads(reply)["Processes"] if status == 200 else ():
                if re.search(r"python[\d.]* (-\S+ )*toy\.py$", command):
                    return [int(pid)]
        return []

    def rows(self, query: str, *values: object) -> list[dict[str, Any]]:
        """What the database says, asked without detlab."""
        with psycopg.connect(self.database.url("site"), row_factory=dict_row) as connection:
            return connection.execute(query.encode(), values).fetchall()


PARTS = ("trial", "agent", "master", "hub", "proxy", "engine", "postgres")


@pytest.fixture
def site(docker_engine: docker.Engine, tmp_path: Path) -> Iterator[Site]:
    """Up, healthy, empty."""
    database = postgres.up()
    try:
        database.sql("CREATE DATABASE site")
        database.sql(
            "ALTER DATABASE site SET synchronous_commit TO on"
        )  # else its death may lose what it has confirmed
        config = docker_images.cluster_config(docker_images.EMPTY)
        config += f"c.DetHub.default_runtime = 'docker'\nc.DetHub.db_url = {database.url('site')!r}\n"
        extra = {"DOCKER_HOST": docker_engine.url}
        with running_cluster(tmp_path, slots=2, config=config, extra=extra) as cluster, lab_of(cluster) as lab:
            yield Site(lab, docker_engine, database)
    finally:
        docker_engine.start()
        postgres.down(database.directory)


def search(name: str, pause: float) -> dict[str, Any]:
    """One trial at a time, so that the order of reports, and with it every decision, follows from the seed."""
    hparams = {"steps": 400, "pause": pause, "save_every": 1}
    more = {"name": name, "max_restarts": 100, "environment": {"image": docker_images.EMPTY}}
    return asha("toy.py", 6, 16, at_once=1, rungs=3, hparams=hparams, **more)


def outcome(experiment: Experiment) -> list[tuple[Any, ...]]:
    """How a search went, trial by trial."""
    return [
        (
            trial.view.index,
            trial.view.request_id,
            trial.hparams["x"],
            trial.view.seed,
            trial.state,
            trial.view.end_reason,
        )
        for trial in experiment.list_trials()
    ]


def decisions(site: Site, experiment: Experiment) -> list[Any]:
    """What the searcher decided, by its journal, in order; but for how fast it was to go."""
    query = "SELECT decisions FROM searcher_journal WHERE experiment_id = %s ORDER BY seq"
    decided = [decision for row in site.rows(query, experiment.id) for decision in json.loads(row["decisions"])]
    for decision in decided:
        decision.get("hparams", {}).pop("pause", None)
    return decided


def watch_in_a_notebook(page: Page, url: str, user: str, experiment: Experiment) -> None:
    """Open a notebook that watches an experiment, and the panel beside it."""
    cells = ["%load_ext detlab_magics", f"%det_watch {experiment.id}"]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    status = page.evaluate(
        """async ([path, content]) => {
          const xsrf = document.cookie.split('; ').find(c => c.startsWith('_xsrf=')).slice(6);
          const body = JSON.stringify({ type: 'notebook', format: 'json', content: JSON.parse(content) });
          const headers = { 'X-XSRFToken': xsrf, 'Content-Type': 'application/json' };
          return (await fetch(path, { method: 'PUT', headers, body })).status;
        }""",
        [f"/user/{user}/api/contents/watch.ipynb", nbformat.writes(book)],
    )
    assert status == 201
    page.goto(f"{url}/user/{user}/lab/tree/watch.ipynb")
    page.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=MOMENTS)
    expect(page.locator("#jp-main-statusbar")).to_contain_text("| Idle", timeout=MOMENTS)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    expect(page.locator(".det-live")).to_be_visible(timeout=MOMENTS)


def test_everything_is_killed_in_turn_and_together_and_nothing_is_lost(site: Site) -> None:
    lab, cluster = site.lab, site.lab.cluster
    with chromium() as browser:
        tour = Tour(cluster, browser)
        log_in(tour)
        start_a_notebook(tour)
        stormy = lab.submit(search("stormy", 0.5), activate=False)
        watch_in_a_notebook(tour.page, cluster.url, cluster.user, stormy)
        tour.experiment = stormy.id
        tour.show_panel()
        expect(tour.item()).to_contain_text("paused", timeout=MOMENTS)
        stormy.activate()
        view = tour.page.locator(".det-live")
        seen = re.compile(r"\b[1-9]\d* points")
        expect(view.locator(".det-live-plot")).to_have_attribute("aria-label", seen, timeout=MOMENTS)
        tour.page.evaluate("window.neverLoadedAgain = true")

        until("a trial that trains", site.trial, 60)
        for part in PARTS:
            site.kill(part)
            site.start_again(part)
            time.sleep(BETWEEN)  # the storm's rhythm, not a wait for anything
        for _ in range(TOGETHER):
            site.kill_together()
            for part in PARTS:
                site.start_again(part)
            time.sleep(BETWEEN)
        assert not is_over(stormy), "the storm is longer than the search"
        ended = lab.completed(stormy, 240)
        expect(tour.item()).to_contain_text("completed", timeout=MOMENTS)
        frozen = tour.page.locator(".jp-OutputArea-output", has_text="stormy")
        expect(frozen).to_contain_text("6/6 trials · completed", timeout=MOMENTS)
        # Cell by cell: the text of a row that is out of sight at this moment has nothing between its cells.
        rows = frozen.locator("tbody tr").evaluate_all("rows => rows.map(r => [...r.cells].map(c => c.textContent))")
        shown = {int(row[0]): int(row[2]) for row in rows}
        assert shown == {trial.id: trial.view.steps_completed for trial in ended.list_trials()}
        assert tour.page.evaluate("window.neverLoadedAgain") is True
        assert tour.wrong == []
        tour.close()

    assert set(site.killed) == set(PARTS)
    assert set(PARTS) in site.together, "the parts that died together: not one round had them all"
    calm = lab.completed(lab.submit(search("calm", 0.02)), 120)
    assert outcome(ended) == outcome(calm)
    decided = decisions(site, ended)
    assert decided == decisions(site, calm)
    assert len(decided) >= 6
    for trial, other in zip(ended.list_trials(), calm.list_trials(), strict=True):
        curve, calm_curve = lab.curve(trial), lab.curve(other)
        assert list(curve) == list(range(1, trial.view.steps_completed + 1)), "no gap, no double, no lost end"
        # A trial that the search stops may take a step more in the one or in the other until it hears of it.
        both = curve.keys() & calm_curve.keys()
        assert len(both) >= 1
        assert {step: curve[step] for step in both} == {step: calm_curve[step] for step in both}
    # only a killed trial costs a restart: what else died under it does not
    assert sum(trial.view.restarts for trial in ended.list_trials()) <= site.killed.count("trial")
    assert {trial.state for trial in ended.list_trials()} == {TrialState.COMPLETED}
    until("no slot is held", lambda: lab.client.get_cluster().slots_used == 0, 60)
    until("no container is left", lambda: site.engine.containers() == [], 60)
    check_slots(site)


def is_over(experiment: Experiment) -> bool:
    """Whether a search has ended; asked until the cluster answers."""

    def look() -> Experiment | None:
        try:
            return experiment.reload()
        except DetlabError:
            return None

    return until("an answer", look, 90).state.terminal


def check_slots(site: Site) -> None:
    """I2: a slot had at most one live owner at any time."""
    held: dict[str, list[tuple[float, float]]] = {}
    for row in site.rows("SELECT slots, assigned_at, ended_at FROM allocations WHERE assigned_at IS NOT NULL"):
        for slot in json.loads(row["slots"]):
            held.setdefault(slot, []).append((row["assigned_at"], row["ended_at"]))
    assert held
    for spans in held.values():
        for (_, ended), (assigned, _) in itertools.pairwise(sorted(spans)):
            assert ended is not None
            assert ended <= assigned
