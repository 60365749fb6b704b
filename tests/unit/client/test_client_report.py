"""What a report gathers, by the calls that it makes: no master, no file."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from detlab.client.operations.runs import reporting
from detlab.client.operations.runs.reporting import MOST_IMAGES, ReportRequest, report_facts
from detlab.client.transport.calls import Call
from detlab.errors import ConfigError, NotFound
from detlab.reports import ReportFacts
from detlab.schemas.wire import ClusterView, CurvesView, ExperimentView, UserView
from detlab.schemas.wire.media import MediaKeyView, MediaView
from detlab.schemas.wire.projects import ProjectView
from detlab.schemas.wire.registry import VersionList
from detlab.schemas.wire.runs import RunCurve
from testbed.reports import experiment, run

THE = experiment()
RUN = run().view
Answer = Callable[[Call], Any]


def picture(number: int, **more: Any) -> MediaView:
    fields = {"id": number, "step": number, "key": "k", "kind": "image", "media_type": "image/png", "size": 10} | more
    return MediaView(**fields)


class Told:
    """A master of one project: experiments from 1 on and one run."""

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.gone: set[str] = set()
        self.pictures = [picture(at) for at in range(1, 7)]
        self.cluster = ClusterView(cluster_id="c", version="1")

    def __call__(self, call: Call) -> Any:
        self.asked.append((call.path, dict(call.params)))
        if call.path in self.gone:
            raise NotFound("gone")
        first, _, rest = call.path.partition("/")
        number, _, below = rest.partition("/")
        known: dict[str, Answer] = {
            "me": lambda _: UserView(name="ada"),
            "cluster": lambda _: self.cluster,
            "workspaces": lambda _: ProjectView(id=5, name="digits", workspace_id=4, workspace="ada/vision"),
            "model-versions": lambda _: VersionList(items=list(THE.versions)),
        }
        if first in known:
            return known[first](call)
        if below.startswith("media"):
            return self._media(below)
        if first == "experiments":
            return self._experiments(number, below)
        if first == "trials":
            return (list(THE.checkpoints) if below == "checkpoints" else [], None)
        if first == "runs" and below == "artifacts":
            return (list(THE.artifacts), None)
        if first == "runs" and below == "curves":
            return ([RunCurve(name="loss", steps=[1], values=[0.5])], None)
        return RUN if number else ([RUN], None)

    def _experiments(self, number: str, below: str) -> Any:
        if not number:
            views = [THE.view.model_copy(update={"id": at}) for at in range(1, self.count + 1)]
            return (views, None)
        view = THE.view.model_copy(update={"id": int(number)})
        assert THE.curves is not None
        return THE.curves.model_copy(update={"experiment": view}) if below == "curves" else view

    def _media(self, below: str) -> Any:
        if below == "media/keys":
            keys = [MediaKeyView(key="k", kind="image", count=9, bytes=90, first_step=1, last_step=9)]
            return (keys, None)
        return (self.pictures, None) if below == "media" else b"picture"

    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]


def made(told: Told, **wanted: Any) -> ReportFacts:
    flow = report_facts(ReportRequest(**wanted), address="http://hub.lan/services/detlab/", now=9.0, command="det …")
    given: Any = None
    failed: NotFound | None = None
    try:
        while True:
            call = flow.throw(failed) if failed else flow.send(given)
            failed = None
            try:
                given = told(call)
            except NotFound as error:
                failed = error
    except StopIteration as end:
        found: ReportFacts = end.value
        return found


def test_a_project_has_its_experiments_and_runs_with_what_belongs_to_them() -> None:
    told = Told(2)
    facts = made(told, project="vision/digits")
    assert (facts.title, facts.maker, facts.made_at) == ("digits", "ada", 9.0)
    assert [one.view.id for one in facts.experiments] == [1, 2]
    assert [one.view.id for one in facts.runs] == [RUN.id]
    assert told.paths()[2] == "workspaces/vision/projects/digits"
    listed = dict(told.asked)["experiments"]
    assert (listed["workspace"], listed["project"], listed["limit"]) == (4, 5, 200)
    assert dict(told.asked)["runs"]["project"] == "ada/vision/digits"
    first = facts.experiments[0]
    assert first.trial is not None
    assert first.trial.id == 12
    assert f"runs/{12:032x}/artifacts" in told.paths()
    assert [one.version.artifact for one in first.artifacts] == ["cats"]
    assert first.versions == []  # the version is of experiment 7
    assert facts.left_out == []


def test_versions_belong_to_the_experiment_that_their_lineage_names() -> None:
    facts = made(Told(), experiments=(7,))
    assert [one.version for one in facts.experiments[0].versions] == [3]
    assert facts.title == "Report"


def test_a_name_alone_is_a_project_of_the_personal_workspace() -> None:
    told = Told()
    made(told, project="digits")
    assert told.paths()[2] == "workspaces/Uncategorized/projects/digits"
    told = Told()
    made(told, project="bob/vision/digits")
    assert told.paths()[2] == "workspaces/bob%2Fvision/projects/digits"


def test_more_than_the_limit_is_cut_and_said() -> None:
    facts = made(Told(3), project="digits", limit=2)
    assert [one.view.id for one in facts.experiments] == [1, 2]
    assert facts.left_out == ["Only the newest 2 experiments are here."]


def test_with_a_filter_there_are_no_runs_but_those_that_are_named() -> None:
    told = Told()
    assert made(told, project="digits", filter="label = paper").runs == []
    assert dict(told.asked)["experiments"]["filter"] == "label = paper"
    assert len(made(Told(), filter="label = paper", runs=("baseline",)).runs) == 1


def test_what_goes_meanwhile_is_counted_and_what_was_named_is_an_error() -> None:
    told = Told(2)
    told.gone = {"experiments/2"}
    facts = made(told, project="digits")
    assert [one.view.id for one in facts.experiments] == [1]
    assert facts.left_out == ["1 of them were deleted, or are no longer shared, while the report was made."]
    with pytest.raises(NotFound):
        made(told, experiments=(2,))


def test_the_newest_pictures_are_taken_up_to_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()
    told.pictures += [picture(20, media_type="image/svg+xml"), picture(21, size=reporting.MOST_IMAGE_BYTES + 1)]
    [one] = made(told, experiments=(7,)).experiments
    assert [image.view.step for image in one.images] == [6, 5, 4, 3]
    assert len(one.images) == MOST_IMAGES
    assert one.media_left_out == 9 - MOST_IMAGES
    monkeypatch.setattr(reporting, "MOST_BYTES", 25)
    first, second = made(Told(), experiments=(7, 8)).experiments
    assert [len(each.images) for each in (first, second)] == [2, 0]


def test_without_media_artifacts_or_a_trial_it_is_a_report_all_the_same() -> None:
    told = Told()
    told.gone = {"trials/12/media/keys", f"runs/{12:032x}/artifacts", "runs/x/media/keys"}
    [one] = made(told, experiments=(7,)).experiments
    assert (one.images, one.artifacts, one.media_left_out) == ([], [], 0)

    class Young(Told):
        def _experiments(self, number: str, below: str) -> Any:
            view = ExperimentView(id=7, name="new", owner="ada", state="ACTIVE", metric="a,b")
            return CurvesView(cursor=1, experiment=view) if below == "curves" else view

    young = Young()
    [one] = made(young, experiments=(7,)).experiments
    assert (one.trial, one.checkpoints) == (None, ())
    assert dict(young.asked)["experiments/7/curves"]["name"] is None  # a comma would end the name


def test_links_begin_with_the_public_address_if_there_is_one() -> None:
    told = Told()
    assert made(told, experiments=(7,)).address == "http://hub.lan/services/detlab/"
    told.cluster = ClusterView(cluster_id="c", version="1", url="http://127.0.0.1:8000/services/detlab/")
    assert made(told, experiments=(7,)).address == "http://hub.lan/services/detlab/"
    told.cluster = ClusterView(cluster_id="c", version="1", url="https://hub.example/services/detlab/")
    assert made(told, experiments=(7,)).address == "https://hub.example/services/detlab/"


def test_nothing_named_and_too_much_are_refused_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        made(Told(), limit=0)
    assert [one.path for one in caught.value.problems] == ["report", "limit"]
    with pytest.raises(ConfigError) as caught:
        made(Told(), experiments=range(1, 300), runs=["r"] * 201)
    assert [one.path for one in caught.value.problems] == ["experiments", "runs"]


def test_the_command_that_makes_it_again_has_all_that_was_said() -> None:
    wanted = ReportRequest("vision/digits", (7, 9), ("base line",), "label = 'x'", "It's $(rm) done", "text", 20)
    words = shlex.split(wanted.command("out.html", "why.md"))
    assert words == [
        *("det", "report", "--project", "vision/digits", "--filter", "label = 'x'"),
        *("--experiment", "7", "--experiment", "9", "--run", "base line"),
        *("--title", "It's $(rm) done", "--notes", "why.md", "-o", "out.html", "--limit", "20"),
    ]
    plain = replace(wanted, project="", experiments=(), filter="", title="", limit=200)
    assert plain.command("r.html") == "det report --run 'base line' -o r.html"
