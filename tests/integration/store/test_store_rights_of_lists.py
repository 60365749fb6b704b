"""Lists that are filtered by rights, in each of their ways through the data, show what the table of rights gives (I9).

Random owners, grants and callers; what is expected is counted object by object with `right_of`.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import select
from test_store_rights import GROUPS, USERS, VIEWERS, experiments, fill, fill_workspaces, workspace_things

from detlab_hub.core.filters.grammar import parse
from detlab_hub.core.rights import ObjectKind, Person, Right, Thing, right_of
from detlab_hub.store import Store
from detlab_hub.store.queries import bundles, jobs, limits, rights, usage
from detlab_hub.store.queries import experiments as of_experiments
from detlab_hub.store.queries.registry import models, naming, search
from detlab_hub.store.queries.storage import usage as stored
from detlab_hub.store.tables import (
    BundleRow,
    CheckpointRow,
    ExperimentRow,
    FreedRow,
    ModelFact,
    ModelGrantRow,
    ModelRow,
    QuotaRow,
    SlotUsageRow,
    StorageQuotaRow,
    TaskRow,
    VersionMetric,
    VersionRow,
)
from testbed.databases.store_rows import add_experiment, add_trial

WAYS = [(0, 0), (0, 3), (3, 0), (4, 1000), (1000, 1000)]
"""`WINDOW` and `FEW`: each of the ways in which versions are found is the one that is taken, in some of them."""
DIGEST = "sha256:" + "1" * 64
SOME = VIEWERS[::5]
"""Each combination of groups, administrators and runs is among them, of some name."""


def fill_registry(s: Any, drawn: random.Random) -> None:
    """Write models of random owners with random grants, each with versions of anybody's checkpoints."""
    uuids = iter(range(1, 1000))
    places = [None, *fill_workspaces(s, drawn)]
    for number in range(14):
        model = ModelRow(name=drawn.choice(["prod", "digits", f"m{number}"]) + str(number), owner=drawn.choice(USERS))
        model.workspace_id = drawn.choice(places)
        s.add(model)
        s.flush()
        s.add(ModelFact(model_id=model.id, name="label", text=f"word {number}"))
        for kind, names in ((rights.USER, USERS), (rights.GROUP, GROUPS)):
            for name in drawn.sample(names, drawn.choice([0, 0, 1, 2])):
                more = {"write": drawn.random() < 0.4, "granted_by": "ann"}
                s.add(ModelGrantRow(model_id=model.id, kind=kind, name=name, **more))
        for version in range(1, drawn.choice([2, 3])):
            experiment = add_experiment(s, owner=drawn.choice(USERS))
            uuid = str(UUID(int=next(uuids)))
            trial = add_trial(s, experiment)
            s.add(CheckpointRow(uuid=uuid, trial_id=trial, experiment_id=experiment, size=10))
            s.flush()
            by = drawn.choice([model.owner, *USERS])
            row = VersionRow(
                model_id=model.id, version=version, checkpoint_uuid=uuid, owner=by, semver=f"{version}.0.0"
            )
            s.add(row)
            s.flush()
            s.add(VersionMetric(version_id=row.id, name="acc", value=drawn.random()))


def models_of(s: Any) -> dict[int, Thing]:
    """All models with all their grants and roles."""
    found = {}
    places, nowhere = workspace_things(s), Thing(ObjectKind.WORKSPACE)
    for row in s.scalars(select(ModelRow)):
        given = rights.grants_of_models(s, [row.id]).get(row.id, [])
        users = {one.name: one.write for one in given if one.kind == rights.USER}
        groups = {one.name: one.write for one in given if one.kind == rights.GROUP}
        place = places.get(row.workspace_id, nowhere)
        found[row.id] = Thing(ObjectKind.MODEL, row.owner, users, groups, place.members, place.member_groups)
    return found


@pytest.mark.parametrize("seed", range(2))
def test_the_registrys_lists(store: Store, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Also by the last way, which looks at all versions in the order of the metric."""
    store.write_sync(lambda s: fill_registry(s, random.Random(seed)))

    def compare(s: Any) -> Counter[tuple[int, int]]:
        things = models_of(s)
        versions = list(s.execute(select(VersionRow.id, VersionRow.model_id, VersionRow.version)))
        shown: Counter[tuple[int, int]] = Counter()
        for viewer in SOME:
            readable = {key for key, thing in things.items() if right_of(viewer, thing) >= Right.READ}
            visible = rights.visible_models(viewer)
            assert set(models.page(s, visible, limit=100)) == readable
            assert len(models.words(s, visible)) == len(readable)
            for name in ("prod1", "digits2"):
                found = {row.id for row in naming.of_name(s, ModelRow, name, visible, 100)}
                assert found == {row.id for row in s.scalars(select(ModelRow)) if row.name == name} & readable
            for window, few in WAYS:
                monkeypatch.setattr(search, "WINDOW", window)
                monkeypatch.setattr(search, "FEW", few)
                for metric in ("acc", None):
                    for where, least in (("", 1), ("version >= 1", 1), ("semver = 2.0.0", 2), ("not version = 1", 2)):
                        page = search.best(s, visible, parse(where), metric, smaller_is_better=False, limit=100)
                        wanted = {key for key, model, number in versions if model in readable and number >= least}
                        assert set(page) == wanted, (viewer, window, few, metric, where)
                        shown[window, few] += len(wanted)
        return shown

    assert all(count > 100 for count in store.read_sync(compare).values())


@pytest.mark.parametrize("seed", range(2))
def test_models_that_share_a_checkpoint_are_those_in_which_its_owner_has_put_it(store: Store, seed: int) -> None:
    store.write_sync(lambda s: fill_registry(s, random.Random(seed)))

    def compare(s: Any) -> int:
        query = select(VersionRow, ModelRow, ExperimentRow).join(ModelRow, ModelRow.id == VersionRow.model_id)
        query = query.join(CheckpointRow, CheckpointRow.uuid == VersionRow.checkpoint_uuid)
        query = query.join(ExperimentRow, ExperimentRow.id == CheckpointRow.experiment_id)
        shared = 0
        for version, model, experiment in s.execute(query):
            found = [row.id for row in models.sharing(s, version.checkpoint_uuid)]
            by_its_owner = experiment.owner in {model.owner, version.owner}
            assert found == ([model.id] if by_its_owner else [])
            shared += by_its_owner
        return shared

    assert store.read_sync(compare) > 3


def fill_rest(s: Any, drawn: random.Random) -> None:
    """Write what else is listed by user: usage, quotas of bytes, freed bytes, code, tasks that have not ended."""
    s.add(BundleRow(digest=DIGEST, size=5, owner="ann"))
    s.flush()
    for number, row in enumerate([*s.scalars(select(ExperimentRow)), *s.scalars(select(TaskRow))]):
        row.bundle = DIGEST if number % 5 == 0 else None
    for number, name in enumerate(USERS):
        s.add(SlotUsageRow(day="2026-01-01", owner=name, kind="trial", slot_seconds=1.0))
        s.add(StorageQuotaRow(kind=rights.USER, name=name, size=1))
        s.add(FreedRow(experiment_id=1000 + number, owner=name, bytes=drawn.randint(1, 9)))
    s.add_all(StorageQuotaRow(kind=rights.GROUP, name=name, size=1) for name in GROUPS)


@pytest.mark.parametrize("seed", range(2))
def test_the_lists_of_experiments_users_and_quotas(store: Store, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    drawn = random.Random(seed)
    store.write_sync(lambda s: fill(s, drawn))
    store.write_sync(lambda s: fill_rest(s, drawn))

    def compare(s: Any) -> None:
        things = experiments(s)
        owners = {row.id: row.owner for row in s.scalars(select(ExperimentRow))}
        for viewer in SOME:
            known = {name for name in USERS if right_of(viewer, Thing(ObjectKind.USER, name)) >= Right.READ}
            readable = {key for key, thing in things.items() if right_of(viewer, thing) >= Right.READ}
            assert set(of_experiments.page(s, viewer=viewer)) == readable
            for most, each in ((200, 6), (200, 1), (0, 6)):  # workspaces one by one, some together, or all
                monkeypatch.setattr(of_experiments, "MOST_PLACES", most)
                monkeypatch.setattr(of_experiments, "EACH", each)
                for limit, before, state in ((3, None, None), (5, 17, None), (4, 20, "ACTIVE"), (100, None, "ACTIVE")):
                    page = of_experiments.page(s, limit, before, state, viewer=viewer, archived="no")
                    wanted = sorted((key for key in readable if before is None or key < before), reverse=True)
                    assert page == wanted[:limit], (viewer, most, each, limit, before, state)
            assert {row.owner for row in usage.between(s, "2026-01-01", "2026-01-02", viewer)} == known
            live = Counter([*owners.values(), *s.scalars(select(TaskRow.owner))])
            assert limits.live_jobs_by_owner(s, viewer) == {name: live[name] for name in known if live[name]}
            assert set(stored.usage(s, "user", viewer)[0]) == known
            assert set(stored.usage(s, "experiment", viewer)[0]) <= readable
            assert {(row.kind, row.name) for row in jobs.quotas(s, viewer)} == quotas_for(s, QuotaRow, viewer)
            found = {(row.kind, row.name) for row in jobs.storage_quotas(s, viewer)}
            assert found == quotas_for(s, StorageQuotaRow, viewer)
            run_it = [row.id for row in s.scalars(select(ExperimentRow).where(ExperimentRow.bundle == DIGEST))]
            found_one = bundles.experiment_with(s, DIGEST, viewer)
            assert (found_one.id in readable) if found_one is not None else not set(run_it) & readable
            theirs = [
                row.id
                for row in s.scalars(select(TaskRow).where(TaskRow.bundle == DIGEST))
                if right_of(viewer, Thing(ObjectKind.TASK, row.owner)) >= Right.READ
            ]
            task = bundles.task_with(s, DIGEST, viewer)
            assert (task.id in theirs) if task is not None else not theirs

    store.read_sync(compare)


def quotas_for(s: Any, table: Any, viewer: Person) -> set[tuple[str, str]]:
    """The quotas of a table that a viewer may read."""
    found = set()
    for row in s.scalars(select(table)):
        to = {row.name: False}
        thing = Thing(ObjectKind.QUOTA, users=to) if row.kind == rights.USER else Thing(ObjectKind.QUOTA, groups=to)
        if right_of(viewer, thing) >= Right.READ:
            found.add((row.kind, row.name))
    return found
