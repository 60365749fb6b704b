"""Filters in SQL find what a naive model finds, on random tables, on both databases; orders and pages likewise."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detlab.errors import NotFound
from detlab_hub.core.filters.fields import FilterTable, field_of
from detlab_hub.core.filters.grammar import parse_field, quoted
from detlab_hub.core.filters.meaning import Asker, read
from detlab_hub.core.rights import Person
from detlab_hub.store import Store
from detlab_hub.store.bounded import QueryTooSlow, bounded
from detlab_hub.store.queries.experiments import narrowed
from detlab_hub.store.queries.finding import names, search
from detlab_hub.store.queries.metrics import curves
from detlab_hub.store.tables import AllocationRow, ExperimentRow, GrantRow, ProjectRow, TrialRow, WorkspaceRow

NOW = 1_000_000.0
USERS = ["ada", "bob", "Eve"]
LABELS = ["paper", 'a,"paper', "PAPER", "back\\slash", "ümlaut", "two words", "\\"]
TEXTS = ["digits", "Digits run", "100%", "a_b", "ÄÖ", "it's", "", '"q"', "x" * 300, "emoji 🎉"]
METRICS = ["acc", "loss", "a.b", "last", "my metric", "état"]
GROUPS = ["validation", "training"]
NUMBERS = [0.0, -0.0, 0.5, 1.0, 1e-9, -3.25, 1e300, math.nan, math.inf, -math.inf]
HPARAMS: list[Any] = [0.1, 1, 1.0, 10**20, "auto", "0.1", "", True, False, None, [1, 2], {"deep": 2}, "🎉"]


@dataclass
class FakeTrial:
    """A trial of the model, and what filters may ask of it."""

    id: int = 0
    state: str = "ACTIVE"
    hparams: dict[str, Any] = field(default_factory=dict)
    reports: dict[tuple[str, str], dict[int, float]] = field(default_factory=dict)
    best_step: int | None = None
    best: float | None = None
    created: float = 0.0
    started: float | None = None
    ended: float | None = None
    steps: int = 0
    runs: bool = False


@dataclass
class FakeExperiment:
    """An experiment of the model."""

    id: int = 0
    owner: str = ""
    name: str = ""
    description: str | None = None
    labels: list[str] = field(default_factory=list)
    archived: bool = False
    workspace: str | None = None
    best_trial: int | None = None
    metric: str = ""
    created: float = 0.0
    priority: int = 42
    trials: list[FakeTrial] = field(default_factory=list)
    readers: set[str] = field(default_factory=set)


# --- the model: an evaluator of its own, which shares no line with the one that is tested


class Naive:
    """What a field is of a trial, or of an experiment by its best trial; None: it has none."""

    def __init__(self, table: FilterTable, parent: FakeExperiment, trial: FakeTrial | None) -> None:
        self.table, self.parent, self.trial = table, parent, trial

    def value(self, name: str) -> Any:
        trials = self.table is FilterTable.TRIALS
        row: Any = self.trial if trials else self.parent
        match name:
            case "id":
                return row.id
            case "experiment":
                return self.parent.id
            case "owner" | "name" | "description" | "archived" | "workspace":
                return getattr(self.parent, name)
            case "label":
                return self.parent.labels
            case "created":
                return row.created
            case "started" | "ended" | "duration" | "steps" | "state" if trials:
                if name != "duration":
                    return getattr(row, name)
                return None if row.started is None else (NOW if row.ended is None else row.ended) - row.started
            case "trials" | "priority" if not trials:
                return len(self.parent.trials) if name == "trials" else self.parent.priority
            case "best" if trials:
                return row.best
        raise AssertionError(name)

    def hparam(self, path: tuple[str, ...]) -> Any:
        found: Any = self.trial.hparams if self.trial else None
        for part in path:
            if not isinstance(found, dict) or part not in found:
                return None
            found = found[part]
        return found

    def metric(self, readings: list[tuple[str, str]], summary: str) -> float | None:
        """NaN is one; None: it was not reported. The metric of the search is that of the best validation, if any."""
        own = summary == "best" and readings[0] == ("validation", self.parent.metric)
        if own and self.trial and self.trial.best is not None:
            return self.trial.best
        return self.reported(readings, summary)

    def reported(self, readings: list[tuple[str, str]], summary: str) -> float | None:
        for key in readings:
            points = self.trial.reports.get(key) if self.trial else None
            if points:
                return self._summary(points, summary)
        return None

    def _summary(self, points: dict[int, float], summary: str) -> float | None:
        assert self.trial is not None
        numbers = [value for value in points.values() if not math.isnan(value)]
        if summary in {"min", "max"}:
            return {"min": min, "max": max}[summary](numbers) if numbers else math.nan
        upto = list(points)
        if summary == "best" and self.trial.best_step is not None:
            upto = [step for step in points if step <= self.trial.best_step]
        return points[max(upto)] if upto else None


Test = Callable[[Naive], bool]


def lower(text: str) -> str:
    return "".join(char.lower() if char.isascii() else char for char in text)


COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@st.composite
def numbers_of_columns(draw: st.DrawFn, table: FilterTable) -> tuple[str, Test]:
    some = ["id", "experiment", "created"]
    some += ["started", "ended", "steps", "best", "duration"] if table is FilterTable.TRIALS else ["trials", "priority"]
    name = draw(st.sampled_from(some))
    operator = draw(st.sampled_from(list(COMPARE)))
    number = draw(st.sampled_from([0, 1, 2, 3, 5, 42, 100, 0.5, NOW - 100.0]))

    def holds(row: Naive) -> bool:
        value = row.value(name)
        if value is None or math.isnan(value):
            return operator == "!="
        return COMPARE[operator](value, number)

    return f"{name} {operator} {number}", holds


@st.composite
def texts(draw: st.DrawFn) -> tuple[str, Test]:
    name = draw(st.sampled_from(["owner", "name", "description", "workspace"]))
    text = draw(st.sampled_from([*TEXTS, *USERS, "DIGITS", "%", "_", "run", "ö", "team"]))
    operator = draw(st.sampled_from(["=", "!=", "contains", "!~"]))

    def holds(row: Naive) -> bool:
        value = row.value(name)
        positive = value is not None and (value == text if operator in {"=", "!="} else lower(text) in lower(value))
        return positive if operator in {"=", "contains"} else not positive

    return f"{name} {operator} {quoted(text)}", holds


@st.composite
def labels(draw: st.DrawFn) -> tuple[str, Test]:
    chosen = draw(st.lists(st.sampled_from([*LABELS, "pap", "paper,"]), min_size=1, max_size=3))
    operator = draw(st.sampled_from(["=", "!=", "in", "not in", "contains", "is null", "is not null"]))
    wanted = chosen

    def holds(row: Naive) -> bool:
        own = row.value("label")
        match operator:
            case "in" | "not in":
                return bool(set(own) & set(wanted)) is (operator == "in")
            case "contains":
                return any(lower(wanted[0]) in lower(label) for label in own)
            case "is null" | "is not null":
                return bool(own) is (operator == "is not null")
        return (wanted[0] in own) is (operator == "=")

    items = ", ".join(map(quoted, chosen))
    tail = {"in": f"in ({items})", "not in": f"not in ({items})", "is null": "is null", "is not null": "is not null"}
    return f"label {tail.get(operator) or f'{operator} {quoted(chosen[0])}'}", holds


@st.composite
def hyperparameters(draw: st.DrawFn) -> tuple[str, Test]:
    path = draw(st.sampled_from([("lr",), ("opt", "name"), ("a.b",), ("none",), ("opt",), ("sp ace", "q't")]))
    name = draw(st.sampled_from(["hp", "hparams"])) + "".join(f".{quoted(part)}" for part in path)
    operator = draw(st.sampled_from(["=", "!=", "<", ">=", "contains", "is null"]))
    if operator == "is null":
        return f"{name} is null", lambda row: row.hparam(path) is None
    if operator == "contains":
        part = draw(st.sampled_from(["aut", "AUTO", "0.", "", "🎉"]))
        return (
            f"{name} contains {quoted(part)}",
            lambda row: (
                readable(row) and (isinstance(row.hparam(path), str) and lower(part) in lower(row.hparam(path)))
            ),
        )
    if operator in {"<", ">="}:
        number = draw(st.sampled_from([0, 0.1, 1, 5e19]))
        return (
            f"{name} {operator} {number}",
            lambda row: readable(row) and is_number(row.hparam(path)) and COMPARE[operator](row.hparam(path), number),
        )
    value = draw(st.sampled_from(["0.1", "1", "auto", "true", "false", "1e-1", "x"]))
    quote = draw(st.booleans())

    def equal(row: Naive) -> bool:
        found = row.hparam(path)
        if not readable(row):
            return False
        if isinstance(found, str):
            return found == value
        if quote:
            return False
        if isinstance(found, bool):
            return value == str(found).lower()
        return is_number(found) and value not in {"auto", "true", "false", "x"} and found == float(value)

    text = f"{name} {operator} {quoted(value) if quote else value}"
    return text, equal if operator == "=" else lambda row: not equal(row)


def readable(row: Naive) -> bool:
    return row.trial is not None


@st.composite
def metrics(draw: st.DrawFn) -> tuple[str, Test]:
    name, group = draw(st.sampled_from([*METRICS, "never"])), draw(st.sampled_from([None, *GROUPS, "metric"]))
    summary = draw(st.sampled_from(["", "best", "last", "min", "max"]))
    readings = (
        [("validation", name)] if group in {None, "metric"} else [(group, name), ("validation", f"{group}.{name}")]
    )
    written = ".".join([*([group] if group else []), quoted(name), *([summary] if summary else [])])
    operator = draw(st.sampled_from([*COMPARE, "nan", "not nan", "is null"]))
    number = draw(st.sampled_from([0.0, 0.5, 1.0, 1e300, math.inf, -math.inf]))

    def holds(row: Naive) -> bool:
        value = row.metric(readings, summary or "best")
        if operator == "is null":
            return not any(row.trial and row.trial.reports.get(key) for key in readings)
        if operator in {"nan", "not nan"}:
            value = row.reported(readings, summary or "best")
            return (value is not None and math.isnan(value)) is (operator == "nan")
        if value is None or math.isnan(value):
            return operator == "!="
        return COMPARE[operator](value, number)

    tail = {"nan": "= nan", "not nan": "!= nan", "is null": "is null"}.get(operator) or f"{operator} {number}"
    return f"{written} {tail}", holds


@st.composite
def states(draw: st.DrawFn) -> tuple[str, Test]:
    state = draw(st.sampled_from(["active", "COMPLETED", "error", "ended", "running"]))

    def holds(row: Naive) -> bool:
        assert row.trial is not None
        if state == "running":
            return row.trial.runs
        if state == "ended":
            return row.trial.state in {"COMPLETED", "CANCELED", "ERROR"}
        return row.trial.state == state.upper()

    return f"state = {state}", holds


@st.composite
def lists(draw: st.DrawFn, table: FilterTable) -> tuple[str, Test]:
    """Of numbers and texts in one list, of each kind of field."""
    name = draw(st.sampled_from(["id", "acc.last", "hp.lr", "name", "created"]))
    words = ["1", "2", "0.5", "0.1", "inf", "100"]
    if name in {"hp.lr", "name"}:
        words += ["auto", "true", "digits", "'0.1'"]
    if name == "created":
        words = ["1", "2", "1970-01-01"]
    chosen = draw(st.lists(st.sampled_from(words), min_size=1, max_size=4))

    def holds(row: Naive) -> bool:
        return any(is_one(row, name, word) for word in chosen)

    negated = draw(st.booleans())
    text = f"{name} {'not in' if negated else 'in'} ({', '.join(chosen)})"
    return text, (lambda row: not holds(row)) if negated else holds


def is_one(row: Naive, name: str, word: str) -> bool:
    text = word.strip("'")
    if name == "name":
        return bool(row.value(name) == text)
    if name == "created" and "-" in word:
        return bool(0 <= row.value(name) < 86_400)
    if name == "hp.lr":
        found = row.hparam(("lr",))
        if isinstance(found, str):
            return found == text
        if isinstance(found, bool):
            return word == str(found).lower()
        return is_number(found) and word not in {"auto", "true", "digits", "'0.1'"} and found == float(word)
    value = row.reported([("validation", "acc")], "last") if name == "acc.last" else row.value(name)
    return value is not None and value == float(word)


def filters(table: FilterTable) -> st.SearchStrategy[tuple[str, Test]]:
    leaves = [numbers_of_columns(table), lists(table), texts(), labels(), hyperparameters(), metrics(), metrics()]
    leaves.append(st.sampled_from([("archived = true", lambda row: row.parent.archived)]))
    if table is FilterTable.TRIALS:
        leaves.append(states())

    def joined(part: st.SearchStrategy[tuple[str, Test]]) -> st.SearchStrategy[tuple[str, Test]]:
        both = st.tuples(part, part, st.booleans()).map(
            lambda drawn: (
                f"({drawn[0][0]} {'and' if drawn[2] else 'or'} {drawn[1][0]})",
                lambda row: (all if drawn[2] else any)(one(row) for one in (drawn[0][1], drawn[1][1])),
            )
        )
        return both | part.map(lambda drawn: (f"not {drawn[0]}", lambda row: not drawn[1](row)))

    return st.recursive(st.one_of(leaves), joined, max_leaves=5)


# --- the tables


def drawn_tables(drawn: random.Random) -> list[FakeExperiment]:
    """Draw experiments with trials: of each kind some."""

    def maybe(value: Any) -> Any:
        return value if drawn.random() < 0.7 else None

    found = []
    for _ in range(drawn.randint(4, 8)):
        one = FakeExperiment(
            owner=drawn.choice(USERS),
            name=drawn.choice(TEXTS),
            description=maybe(drawn.choice(TEXTS)),
            labels=drawn.sample(LABELS, drawn.randint(0, 3)),
            archived=drawn.random() < 0.2,
            workspace=maybe("team"),
            created=float(drawn.choice([1, 2, 100])),
            priority=drawn.choice([1, 42]),
            metric=drawn.choice([*METRICS, ""]),
            readers=set(drawn.sample(USERS, drawn.randint(0, 1))),
        )
        for _ in range(drawn.randint(0, 4)):
            trial = FakeTrial(
                state=drawn.choice(["ACTIVE", "COMPLETED", "ERROR"]),
                created=float(drawn.choice([1, 2, 100])),
                started=maybe(NOW - 200.0),
                ended=maybe(NOW - drawn.choice([100.0, 150.0])),
                steps=drawn.randint(0, 3),
                best=maybe(drawn.choice([0.5, 1.0])),
                best_step=maybe(drawn.randint(0, 3)),
                runs=drawn.random() < 0.3,
            )
            trial.hparams = {key: drawn.choice(HPARAMS) for key in ("lr", "a.b") if drawn.random() < 0.8}
            if drawn.random() < 0.7:
                trial.hparams["opt"] = {"name": drawn.choice(HPARAMS)}
                trial.hparams["sp ace"] = {"q't": drawn.choice(HPARAMS)}
            for group in GROUPS:
                for name in METRICS:
                    if drawn.random() < 0.6:
                        steps = sorted(drawn.sample(range(5), drawn.randint(1, 4)))
                        trial.reports[group, name] = {step: drawn.choice(NUMBERS) for step in steps}
            one.trials.append(trial)
        if one.trials and drawn.random() < 0.7:
            one.best_trial = drawn.randrange(len(one.trials))
        found.append(one)
    return found


def write(s: Any, tables: list[FakeExperiment]) -> None:
    place = WorkspaceRow(path="ada/team", name="team", owner="ada")
    s.add(place)
    s.flush()
    s.add(ProjectRow(workspace_id=place.id, key="p", name="p", owner="ada"))
    for number, one in enumerate(tables):
        row = ExperimentRow(
            name=one.name,
            owner=one.owner,
            state="ACTIVE",
            description=one.description,
            labels=one.labels,
            archived_at=1.0 if one.archived else None,
            workspace_id=place.id if one.workspace else None,
            created_at=one.created,
            priority=one.priority,
            metric=one.metric,
        )
        s.add(row)
        s.flush()
        one.id = row.id
        for name in one.readers - {one.owner}:
            s.add(GrantRow(experiment_id=row.id, kind="user", name=name))
        for idx, trial in enumerate(one.trials):
            made = TrialRow(
                experiment_id=row.id,
                idx=idx,
                request_id=str(idx),
                state=trial.state,
                hparams=trial.hparams,
                created_at=trial.created,
                started_at=trial.started,
                ended_at=trial.ended,
                steps_completed=trial.steps,
                best_validation=trial.best,
            )
            s.add(made)
            s.flush()
            trial.id = made.id
            for (group, name), points in trial.reports.items():
                for step, value in points.items():
                    curves.insert_report(s, made.id, 1, group, step, 0.0, {name: value})
            made.best_step = trial.best_step
            if trial.runs:
                s.add(
                    AllocationRow(id=f"{number}.{idx}", trial_id=made.id, experiment_id=row.id, run=1, state="RUNNING")
                )
        if one.best_trial is not None:
            row.best_trial_id = one.trials[one.best_trial].id


def rows(table: FilterTable, tables: list[FakeExperiment]) -> Iterator[Naive]:
    for one in tables:
        if table is FilterTable.TRIALS:
            yield from (Naive(table, one, trial) for trial in one.trials)
        else:
            shown = None if not one.trials else one.trials[one.best_trial or 0]
            yield Naive(table, one, shown)


def visible(viewer: Person, one: FakeExperiment) -> bool:
    return viewer.admin or viewer.name in {one.owner, *one.readers}


@dataclass
class World:
    store: Store
    tables: list[FakeExperiment]

    def found(self, table: FilterTable, text: str, viewer: Person, **more: Any) -> list[int]:
        meaning = read(text, table, Asker(viewer.name, NOW))
        wanted = search.WantedRows(table, meaning, more.pop("sort", ()), more.pop("more", ()))
        limit, after = more.get("limit", 1000), more.get("after")
        return self.store.read_sync(lambda s: search.page(s, viewer, wanted, limit, after, NOW))

    def naive(self, table: FilterTable, holds: Test, viewer: Person) -> list[int]:
        kept = [row for row in rows(table, self.tables) if visible(viewer, row.parent) and holds(row)]
        return sorted((row.value("id") for row in kept), reverse=True)


@pytest.fixture(params=range(2))
def world(request: pytest.FixtureRequest, store: Store) -> World:
    tables = drawn_tables(random.Random(request.param))
    store.write_sync(lambda s: write(s, tables))
    return World(store, tables)


VIEWERS = [Person("ada"), Person("bob"), Person("root", admin=True), Person("nobody")]
MANY = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@MANY
@given(filters(FilterTable.TRIALS), st.sampled_from(VIEWERS))
def test_trials_are_those_that_the_model_finds(world: World, drawn: tuple[str, Test], viewer: Person) -> None:
    text, holds = drawn
    assert world.found(FilterTable.TRIALS, text, viewer) == world.naive(FilterTable.TRIALS, holds, viewer), text


@MANY
@given(filters(FilterTable.EXPERIMENTS), st.sampled_from(VIEWERS))
def test_experiments_are_those_that_the_model_finds(world: World, drawn: tuple[str, Test], viewer: Person) -> None:
    """Their hyperparameters and metrics are those of their best trial, or of their first one while none is best."""
    text, holds = drawn
    assert world.found(FilterTable.EXPERIMENTS, text, viewer) == world.naive(FilterTable.EXPERIMENTS, holds, viewer), (
        text
    )


SORTS = ["acc", "loss.min", "training.acc.last", "hparams.lr", "name", "owner", "created", "id", "never", "description"]


@MANY
@given(
    st.sampled_from(list(FilterTable)),
    st.lists(st.tuples(st.sampled_from(SORTS), st.booleans()), max_size=3),
    st.integers(1, 4),
)
def test_pages_in_an_order_have_each_row_once_and_what_has_no_value_comes_last(
    world: World, table: FilterTable, keys: list[tuple[str, bool]], limit: int
) -> None:
    viewer = VIEWERS[2]
    sort = [search.SortKey(field_of(table, parse_field(name)), descending) for name, descending in keys]
    whole = world.found(table, "", viewer, sort=sort)
    assert sorted(whole, reverse=True) == world.naive(table, lambda row: True, viewer)
    paged: list[int] = []
    while part := world.found(table, "", viewer, sort=sort, limit=limit, after=paged[-1] if paged else None):
        paged += part
    assert paged == whole
    by_id = {row.value("id"): row for row in rows(table, world.tables)}
    for name, descending in keys[:1]:
        values = [ordered(by_id[key], name) for key in whole]
        present = [value for value in values if value is not None]
        assert values == [*sorted(present, reverse=descending), *[None] * (len(values) - len(present))]


def ordered(row: Naive, name: str) -> Any:
    if name == "hparams.lr":
        value = row.hparam(("lr",))
        return value if is_number(value) else None
    readings = {
        "acc": ([("validation", "acc")], "best"),
        "loss.min": ([("validation", "loss")], "min"),
        "training.acc.last": ([("training", "acc"), ("validation", "training.acc")], "last"),
        "never": ([("validation", "never")], "best"),
    }.get(name)
    if readings is None:
        value = row.value(name)
        return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    value = row.metric(*readings)
    return None if value is None or math.isnan(value) else value


# --- what else may come


def test_what_no_database_takes_for_json_stops_no_query(store: Store) -> None:
    """NaN, NUL and halves of characters, as a client of an earlier version may have stored them."""
    weird = [{"lr": math.nan}, {"lr": "a\x00b"}, {"lr": "\ud800"}, {"lr": [math.inf]}, {"lr": "🎉"}, {"lr": 0.5}, {}]
    tables = [FakeExperiment(owner="ada", labels=["\ud800", "a\x00"], trials=[FakeTrial(hparams=one) for one in weird])]
    store.write_sync(lambda s: write(s, tables))
    world, ada, table = World(store, tables), Person("ada"), FilterTable.TRIALS
    keys = [trial.id for trial in tables[0].trials]
    assert world.found(table, "hp.lr < 1", ada) == [keys[5]]
    assert world.found(table, "hp.lr ~ '🎉'", ada) == [keys[4]]
    assert world.found(table, "label ~ a or label ~ b or hp.lr = x or label = '\ud800'", ada) in ([], keys[::-1])
    fields = [field_of(table, parse_field(name)) for name in ("hparams.lr", "label")]
    for field_ in fields:
        paged: list[int] = []
        sort = [search.SortKey(field_)]
        while part := world.found(table, "", ada, sort=sort, limit=1, after=paged[-1] if paged else None):
            paged += part
        assert sorted(paged) == keys
    values = store.read_sync(lambda s: search.columns_of(s, table, keys, fields, NOW))
    assert [values[key][0] for key in keys[4:]] == ["🎉", 0.5, None]


def test_columns_have_what_the_model_has(world: World) -> None:
    for table in FilterTable:
        columns = [
            "acc",
            "loss.min",
            "training.'a.b'.last",
            "hparams.lr",
            "hp.opt.name",
            "created",
            "label",
            "archived",
        ]
        fields = [field_of(table, parse_field(name)) for name in columns]
        found = list(rows(table, world.tables))
        keys = [row.value("id") for row in found]
        values = world.store.read_sync(lambda s, t=table, k=keys, f=fields: search.columns_of(s, t, k, f, NOW))
        for row in found:
            wanted = [
                row.metric([("validation", "acc")], "best"),
                row.metric([("validation", "loss")], "min"),
                row.metric([("training", "a.b")], "last"),
                row.hparam(("lr",)),
                row.hparam(("opt", "name")),
                *(row.value(name) for name in ("created", "label", "archived")),
            ]
            assert repr(values[row.value("id")]).replace("-0.0", "0.0") == repr(wanted).replace("-0.0", "0.0")


def test_another_tenants_names_are_in_no_completion_and_no_hint(world: World) -> None:
    owner, nobody = Person(world.tables[0].owner), Person("nobody")

    def look(s: Any) -> None:
        assert names.metrics(s, nobody, "", 100) == []
        assert names.hyperparameters(s, nobody) == []
        assert names.labels(s, nobody) == []
        assert names.texts(s, nobody, "owner") == []
        known = field_of(FilterTable.TRIALS, parse_field("acc"))
        assert names.unknown_metrics(s, nobody, [known]) == [known]
        readable = [one for one in world.tables if visible(owner, one)]
        assert set(names.labels(s, owner)) == {label for one in readable for label in one.labels}
        assert set(names.texts(s, owner, "owner")) == {one.owner for one in readable}
        reported = {key for one in readable for trial in one.trials for key in trial.reports}
        assert set(names.metrics(s, owner, "", 100)) == reported
        assert names.metrics(s, owner, "ACC", 100) == sorted(key for key in reported if "acc" in key[1])

    world.store.read_sync(look)


def test_a_page_after_a_row_of_somebody_else_is_refused_like_one_after_none(world: World) -> None:
    others = next(row for row in rows(FilterTable.TRIALS, world.tables) if not visible(Person("nobody"), row.parent))
    for after in (others.value("id"), 10**9):
        with pytest.raises(NotFound, match=f"there is no trial {after}"):
            world.found(FilterTable.TRIALS, "", Person("nobody"), after=after)


def test_archived_experiments_are_left_out_with_their_trials(world: World) -> None:
    root = VIEWERS[2]
    for table in FilterTable:
        found = world.found(table, "", root, more=narrowed(archived="no"))
        assert found == world.naive(table, lambda row: not row.parent.archived, root)


def test_a_statement_that_takes_too_long_is_given_up(store: Store) -> None:
    """And the connection is as good as before."""
    from sqlalchemy import text

    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"

    def ask(s: Any) -> None:
        with bounded(s, 0.3, "the filter", "narrow it"):
            s.execute(text(endless))

    with pytest.raises(QueryTooSlow, match=r"the filter took more than 0\.3 seconds"):
        store.read_sync(ask)
    for _ in range(5):
        assert store.read_sync(lambda s: s.scalar(text("SELECT 1"))) == 1
