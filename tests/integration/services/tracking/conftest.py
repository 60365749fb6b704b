"""A master of the scripted world behind real HTTP, for clients of MLflow; users are known by tokens of the tests."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from services_scripted import World, config
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from detlab_hub.services import Caller
from detlab_hub.services.base.callers import ADMIN, READ, WRITE
from detlab_hub.web.auth import Identifier
from detlab_hub.web.bodies import MOST_READ
from detlab_hub.web.routes import Background, WebSettings, make_application

ROOT = Path(__file__).parents[4]
CLIENTS = {"3": ROOT / ".venv-mlflow" / "bin" / "python", "2": ROOT / ".venv-mlflow2" / "bin" / "python"}
"""Python with a version of MLflow, in an environment of its own."""
SCOPES = frozenset({READ, WRITE})


class KnownUsers(Identifier):
    """Takes `user:NAME` for the token of a user; tokens of tasks are the master's own."""

    async def _by_token(self, bearer: str) -> Any:
        if not bearer.startswith("user:"):
            return await super()._by_token(bearer)
        name, reads, _ = bearer.removeprefix("user:").partition("!read")
        name, _, groups = name.partition("+")
        scopes = {READ} if reads else SCOPES | {ADMIN} if name == "root" else SCOPES
        return Caller(name, frozenset(scopes), admin=name == "root", groups=frozenset(filter(None, [groups])))

    async def _ask(self, question: Any) -> None:
        question.close()


@dataclass
class Door:
    """The master's protocol over HTTP."""

    world: World
    base: str
    folder: Path
    made: list[httpx.AsyncClient] = field(default_factory=list)

    def of(self, token: str) -> Any:
        """Return a function that asks as the holder of a token: `ask(VERB, PATH, **fields)` -> status and reply."""
        headers = {"Authorization": f"Bearer {token if token.startswith('dt') else f'user:{token}'}"}
        http = httpx.AsyncClient(base_url=self.base, headers=headers, trust_env=False, timeout=60)
        self.made.append(http)

        async def ask(verb: str, path: str, /, **fields: Any) -> tuple[int, Any]:
            sent: dict[str, Any] = {"params": fields} if verb == "GET" else {"content": json.dumps(fields)}
            reply = await http.request(verb, f"mlflow/api/2.0/mlflow/{path}", **sent)
            return reply.status_code, reply.json()

        ask.http = http  # type: ignore[attr-defined]  # for files
        return ask

    async def run(self, code: str, token: str, *, version: str = "3", **environ: str) -> str:
        """Run code with a real client; return the last line that it has printed, and fail if it fails."""
        if not CLIENTS[version].exists():
            assert "CI" not in os.environ, "make setup-test makes .venv-mlflow and .venv-mlflow2"
            pytest.skip("no environment with this version of MLflow: make setup-test")
        environment = {
            "PATH": os.defpath,
            "HOME": str(self.folder),
            "MLFLOW_TRACKING_URI": f"{self.base}mlflow",
            "MLFLOW_TRACKING_TOKEN": token if token.startswith("dt") else f"user:{token}",
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "GIT_PYTHON_REFRESH": "quiet",
            **environ,
        }
        process = await asyncio.create_subprocess_exec(
            str(CLIENTS[version]),
            *("-W", "ignore", "-c", code),
            env={name: value for name, value in environment.items() if value},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self.folder,
        )
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()[-6000:]
        sys.stderr.write(err.decode())
        return out.decode().splitlines()[-1] if out.strip() else ""

    async def trial(self, owner: str = "alice", **more: Any) -> Any:
        """Submit an experiment with one trial that runs, and return it with its token."""
        world = self.world
        if "node" not in world.agents:
            await world.add_agent(slots=4)
        view = await world.submit(config(**more), caller=Caller(owner, SCOPES))

        async def runs() -> bool:
            return _task_of(world, view.id) is not None

        await world.until(runs)
        task = _task_of(world, view.id)
        return SimpleNamespace(
            experiment=view.id, id=task.caller.trial_id, token=task.launch.task_token, task=task, caller=task.caller
        )


def _task_of(world: World, experiment: int) -> Any:
    tasks = [task for agent in world.agents.values() for task in agent.tasks.values() if not task.exited]
    return next((task for task in tasks if task.caller.experiment_id == experiment), None)


@pytest.fixture
async def make_door(
    make_world: Callable[..., Awaitable[World]], tmp_path: Path
) -> AsyncIterator[Callable[..., Awaitable[Door]]]:
    """Make doors to worlds of their own."""
    ends: list[Callable[[], Awaitable[None]]] = []

    async def make(script: Any = None, **settings: Any) -> Door:
        world = await make_world(script or _waiting, **settings)
        background = Background()
        web = WebSettings(cookie_secret=b"x" * 32, hub_public_url="/hub/", background=background)
        hub: Any = SimpleNamespace(user_for_token=None)
        application = make_application(world.services, KnownUsers(hub, world.services), web)
        server = HTTPServer(application, max_body_size=MOST_READ)
        sockets = bind_sockets(0, "127.0.0.1", family=socket.AF_INET)
        server.add_sockets(sockets)
        folder = tmp_path / "client"
        folder.mkdir()
        door = Door(world, f"http://127.0.0.1:{sockets[0].getsockname()[1]}/services/detlab/", folder)

        async def end() -> None:
            for http in door.made:
                await http.aclose()
            server.stop()
            await application.settings["streams"].close()
            await server.close_all_connections()
            await background.wait()

        ends.append(end)
        return door

    yield make
    for end in ends:
        await end()


@pytest.fixture
async def door(make_door: Callable[..., Awaitable[Door]]) -> Door:
    """A door to a world whose trials wait."""
    return await make_door()


def _waiting(launch: Any) -> Any:
    """A trial's code that does nothing by itself."""
    while True:
        yield ("wait",)
