"""Where the master moves a stored file, nobody's upload waits for another user's turn."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from services_scripted import ALICE, BOB
from test_gaps_bundles import CODE, digest_of, packed

from detlab.schemas.taskwire import CreateTask, TaskKind
from detlab_hub.services.admission.bundles import Bundles
from detlab_hub.services.base.fencing import caller_of
from detlab_hub.services.usertasks.outputs import Outputs
from detlab_hub.services.usertasks.usertasks import UserTasks
from detlab_hub.store.tables import AllocationRow

OTHER = packed("print('bob')")


async def both_bundles(world: Any, tmp_path: Path) -> list[Callable[[], Awaitable[Any]]]:
    """Return the uploads of two users' code."""
    (tmp_path / "a").write_bytes(CODE)
    (tmp_path / "b").write_bytes(OTHER)
    bundles = world.services[Bundles]
    return [
        lambda: bundles.put(ALICE, digest_of(CODE), tmp_path / "a"),
        lambda: bundles.put(BOB, digest_of(OTHER), tmp_path / "b"),
    ]


async def both_outputs(world: Any, tmp_path: Path) -> list[Callable[[], Awaitable[Any]]]:
    """Return the uploads of two users' tasks."""
    await world.add_agent()
    wanted = CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": ["true"], "resources": {"slots": 0}})
    for caller in (ALICE, BOB):
        await world.services[UserTasks].create(caller, wanted)
    await world.steps(4)
    rows = {row.owner: row for row in await world.services.context.read(lambda s: s.query(AllocationRow).all())}
    for name in ("alice", "bob"):
        (tmp_path / name).write_text(name)
    put = world.services[Outputs].put
    return [lambda name=name: put(caller_of(rows[name]), "x", tmp_path / name) for name in ("alice", "bob")]


@pytest.mark.parametrize("made", [both_bundles, both_outputs])
async def test_no_upload_waits_for_another_users_turn(make_world: Any, tmp_path: Path, made: Any) -> None:
    """With the lock of all moves, alice's move waited behind her other uploads, and everybody's behind hers."""

    def idle(launch: Any) -> Any:
        while True:
            yield ("wait",)

    world = await make_world(idle)
    alices, bobs = await made(world, tmp_path)
    uploads = world.services.context.workers.uploads
    gates = [threading.Event() for _ in range(2)]
    hers = [asyncio.ensure_future(alices())]
    await asyncio.sleep(0)
    hers.append(asyncio.ensure_future(uploads.run(ALICE.name, gates[0].wait, 30)))
    await asyncio.sleep(0.5)  # her upload waits to be looked at; the next call stands behind that
    hers.append(asyncio.ensure_future(uploads.run(ALICE.name, gates[1].wait, 30)))
    await asyncio.sleep(0.1)
    gates[0].set()
    await asyncio.sleep(0.5)
    try:
        await asyncio.wait_for(bobs(), 5)
    finally:
        gates[1].set()
        await asyncio.gather(*hers)
