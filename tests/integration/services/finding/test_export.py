"""Tables as files: CSV and Parquet with the rows of the list, bounded, and only with what the caller may read."""

from __future__ import annotations

import csv
import io
import math
import sys
from contextlib import aclosing

import pytest
from services_scripted import ALICE, BOB, ROOT, config

from detlab.errors import ConfigError
from detlab.schemas.wire import EditExperiment, GrantRequest, GrantTo
from detlab_hub.core.filters.fields import FilterTable
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.experiments.edits import Edits
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.grants import Grants
from detlab_hub.services.finding import export
from detlab_hub.services.finding.export import ExportRefused, TableExport
from detlab_hub.services.finding.finding import RunFinder

TRIALS, EXPERIMENTS = FilterTable.TRIALS, FilterTable.EXPERIMENTS


def scoring(launch):
    yield ("metrics", "validation", 1, {"loss": launch.info.hparams["lr"], "odd": math.nan, "=a,b\n": 1.0})
    yield ("exit", 0)


@pytest.fixture
async def world(make_world):
    """Alice's experiments `mine` and `=2+3`, Bob's `theirs`, of one trial each."""
    world = await make_world(scoring)
    await world.add_agent()
    for caller, name, rate in ((ALICE, "mine", 0.1), (ALICE, "=2+3", 0.2), (BOB, "theirs", 0.01)):
        settings = {"lr": rate, "name": "-1\u202e", "many": [1, "x"]}
        made = await world.submit(config(name=name, hyperparameters=settings), caller)
        await world.finish(made.id)
        await world.services[Edits].edit(caller, made.id, EditExperiment(labels=["a,b", "c"]))
    return world


async def written(world, caller=ALICE, table=TRIALS, kind="csv", **asked):
    file = await world.services[TableExport].open(caller, table=table, format=kind, **asked)
    async with aclosing(file.parts) as parts:
        return b"".join([part async for part in parts])


async def rows(world, caller=ALICE, **asked):
    text = (await written(world, caller, **asked)).decode()
    return list(csv.reader(io.StringIO(text)))


async def test_a_file_has_the_rows_of_the_list_in_its_order(world):
    asked = {
        "filter": "loss > 0.05",
        "sort": ["-loss"],
        "column": ["name", "loss", "odd", "hp.many", "hp.name", "label"],
    }
    head, *body = await rows(world, **asked)
    assert head == asked["column"]
    page = await world.services[RunFinder].trials(ALICE, **asked)
    assert [one.name for one in page.items] == ["=2+3", "mine"]
    assert body == [
        ["'=2+3", "0.2", "nan", '[1, "x"]', "'-1⟨U+202E⟩", "a,b, c"],
        ["mine", "0.1", "nan", '[1, "x"]', "'-1⟨U+202E⟩", "a,b, c"],
    ]
    usual = await rows(world, table=EXPERIMENTS)
    assert usual[0][:4] == ["id", "name", "owner", "label"]
    assert [row[1] for row in usual[1:]] == ["'=2+3", "mine"]
    assert (await rows(world, column=['"=a,b\n"']))[0] == ['\'"=a,b\n"']


async def test_a_file_holds_what_its_reader_may_see(world):
    assert [row[0] for row in (await rows(world, BOB, column=["name"]))[1:]] == ["theirs"]
    assert len(await rows(world, ROOT)) == 1 + 3
    assert len(await rows(world, Caller("mallory"))) == 1
    assert len(await rows(world, Caller("mallory"), table=EXPERIMENTS)) == 1


async def test_a_right_that_is_taken_away_meanwhile_ends_the_file(world, monkeypatch):
    monkeypatch.setattr(export, "PART", 1)
    mine = (await world.services[Experiments].list(ALICE))[0]
    for one in mine:
        await world.services[Grants].put(ALICE, one.id, GrantRequest(kind="user", name="bob"))
    asked = {"table": TRIALS, "format": "csv", "column": ["name"], "filter": "owner = alice", "sort": ["id"]}
    file = await world.services[TableExport].open(BOB, **asked)
    async with aclosing(file.parts) as parts:
        assert await anext(parts) == b"name\r\n"
        assert await anext(parts) == b"mine\r\n"
        for one in mine:
            await world.services[Grants].remove(ALICE, one.id, GrantTo(kind="user", name="bob"))
        assert [part async for part in parts] == [b"", b""]


async def test_parts_are_the_whole_whatever_fits_in_one(world, monkeypatch):
    whole = await written(world, ROOT, sort=["-id"])
    monkeypatch.setattr(export, "PART", 1)
    assert await written(world, ROOT, sort=["-id"]) == whole


async def test_what_cannot_be_written_is_refused_before_the_first_byte(world, monkeypatch):
    with pytest.raises(ConfigError):
        await written(world, filter="loss >")
    with pytest.raises(ConfigError):
        await written(world, column=["a..b"])
    monkeypatch.setattr(export, "MOST_ROWS", 1)
    with pytest.raises(ExportRefused, match="more than 1 trials"):
        await written(world)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ExportRefused, match="needs pyarrow"):
        await written(world, kind="parquet")


async def test_parquet_has_types(world, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(export, "PART", 2)
    columns = ["id", "name", "label", "state", "archived", "created", "loss", "hp.many", "hp.lr"]
    table = parquet.read_table(io.BytesIO(await written(world, ROOT, kind="parquet", column=columns, sort=["id"])))
    kinds = [str(field.type) for field in table.schema]
    assert table.column_names == columns
    assert [kinds[at] for at in (0, 1, 4, 5, 6)] == ["double", "string", "bool", "timestamp[us, tz=UTC]", "double"]
    first = table.to_pylist()[0]
    assert (first["name"], first["label"], first["archived"], first["loss"]) == ("mine", ["a,b", "c"], False, 0.1)
    assert (first["hp.many"], first["hp.lr"]) == ('[1, "x"]', "0.1")
    assert table.num_rows == 3
    empty = await written(world, Caller("mallory"), kind="parquet")
    assert parquet.read_table(io.BytesIO(empty)).num_rows == 0
