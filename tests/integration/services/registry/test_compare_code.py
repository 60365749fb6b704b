"""The code of versions side by side: as it was when they were registered, and to those who may read it."""

from __future__ import annotations

import asyncio
import hashlib
import io
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from services_scripted import ALICE, BOB, World, config, report

from detlab.schemas.wire import GrantRequest
from detlab.schemas.wire.registry import CreateModel, CreateVersion
from detlab_hub.services.admission.bundles import Bundles
from detlab_hub.services.comparison.differing import DIFFED_LINES, differences, unified
from detlab_hub.services.experiments.grants import Grants
from detlab_hub.services.registry.comparing import Comparisons
from detlab_hub.services.registry.models import Models
from detlab_hub.services.registry.versions import Versions
from detlab_hub.store.tables import ExperimentRow

OLD = {
    "train.py": b"lr = 0.1\nprint(lr)\n",
    "same.py": b"pass\n",
    "gone.py": b"x\n",
    "data.bin": b"\xff\x00",
    ".env": b"API_KEY=s3cret-one\n",
}
NEW = {
    "train.py": b"lr = 0.2\nprint(lr)\n",
    "same.py": b"pass\n",
    "new.py": b"y\n",
    "data.bin": b"\xff\x01",
    ".env": b"API_KEY=s3cret-two\n",
}


def scoring(_launch):
    yield report(1, loss=1.0, accuracy=0.5, batches=1)
    yield ("save", 1)
    yield ("exit", 0)


@dataclass
class Coded:
    """A world in which Alice's versions 1 and 2 have different code, and the experiment of the second."""

    world: World
    experiment: int = 0


def packed(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


async def sent(world: World, tmp_path: Path, files: dict[str, bytes]) -> str:
    """Upload code of Alice's; return the digest of the bundle."""
    data = packed(files)
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    (tmp_path / "upload").write_bytes(data)
    await world.services[Bundles].put(ALICE, digest, tmp_path / "upload")
    return digest


@pytest.fixture
async def coded(make_world, tmp_path: Path) -> Coded:
    """Model `digits` with version 1 of an experiment with the old code, and version 2 of one with the new."""
    return await registered(await make_world(scoring), tmp_path, OLD, NEW)


async def registered(world: World, tmp_path: Path, *codes: dict[str, bytes]) -> Coded:
    """Make a version of `digits` for each code."""
    await world.add_agent()
    place = Coded(world)
    await world.services[Models].create(ALICE, CreateModel(name="digits"))
    for files in codes:
        bundle = await sent(world, tmp_path, files)
        made = await world.submit(config(name="mine", hyperparameters={"lr": 0.1}), ALICE, bundle=bundle)
        await world.finish(made.id)
        await world.services[Versions].register(ALICE, "digits", CreateVersion(experiment_id=made.id))
        place.experiment = made.id
    return place


async def test_what_differs_of_the_code_is_shown_line_by_line(coded: Coded) -> None:
    found = await coded.world.services[Comparisons].compare(ALICE, "digits", [])
    by_path = {one.path: one for one in found.code}
    assert sorted(by_path) == [".env", "data.bin", "gone.py", "new.py", "train.py"]
    assert by_path["train.py"].diff == (
        "--- train.py (version 1)\n+++ train.py (version 2)\n@@ -1,2 +1,2 @@\n-lr = 0.1\n+lr = 0.2\n print(lr)\n"
    )
    assert by_path["gone.py"].digests[1] is None
    assert by_path["new.py"].digests[0] is None
    assert by_path["data.bin"].diff == by_path["new.py"].diff == ""
    assert "s3cret" not in found.model_dump_json(), "values of files of secrets are never shown"


async def test_code_made_to_be_slow_to_compare_holds_up_nobody(make_world, tmp_path: Path) -> None:
    """Every second line is the same: the time grows with the square of the lines; it was spent on the event loop."""
    before = [f"{number}\n" for number in range(9000)]
    after = [line if number % 2 else f"x{line}" for number, line in enumerate(before)]
    codes = ({"slow.py": "".join(lines).encode()} for lines in (before, after))
    coded = await registered(await make_world(scoring), tmp_path, *codes)
    asked = asyncio.ensure_future(coded.world.services[Comparisons].compare(ALICE, "digits", []))
    loop, longest = asyncio.get_running_loop(), 0.0
    while not asked.done():
        began = loop.time()
        await asyncio.sleep(0.01)
        longest = max(longest, loop.time() - began)
    assert [(one.path, one.diff) for one in (await asked).code] == [("slow.py", "")]
    assert longest < 2.0


def test_files_are_compared_line_by_line_up_to_a_number_of_lines() -> None:
    most = ["a\n" * DIFFED_LINES, "b\n" + "a\n" * (DIFFED_LINES - 1)]
    assert unified(most, ["old", "new"]).startswith("--- old\n+++ new\n")
    assert unified([most[0], most[1] + "a\n"], ["old", "new"]) == ""


async def test_the_code_is_that_of_the_registration_though_the_experiment_has_got_other_code(
    coded: Coded, tmp_path: Path
) -> None:
    other = await sent(coded.world, tmp_path, {"train.py": b"another\n"})

    def steer(unit) -> None:
        unit.session.get_one(ExperimentRow, coded.experiment).bundle = other

    before = await coded.world.services[Comparisons].compare(ALICE, "digits", [])
    await coded.world.services.context.write(steer)
    assert (await coded.world.services[Comparisons].compare(ALICE, "digits", [])).code == before.code


async def test_i9_readers_of_the_model_alone_see_no_code(coded: Coded) -> None:
    services = coded.world.services
    await services[Models].share(ALICE, "digits", GrantRequest(kind="user", name="bob"))
    found = await services[Comparisons].compare(BOB, "alice/digits", [])
    assert len(found.versions) == 2
    assert found.code == []
    await services[Grants].put(ALICE, coded.experiment, GrantRequest(kind="user", name="bob"))
    assert (await services[Comparisons].compare(BOB, "alice/digits", [])).code == [], "one of the two is not enough"


def test_what_is_empty_in_one_config_and_left_out_of_another_is_no_difference() -> None:
    """Regression: `searcher.max_length` was listed as different where no version had one."""
    rows = differences([{"searcher.max_length": None, "env": {}, "lr": 0}, {"env": None, "lr": None}, {"lr": 0}])
    assert {row.name: row.same for row in rows} == {"searcher.max_length": True, "env": True, "lr": False}
