"""The routes that are more than a relay: versions, the form's schema, submitting what is in the user's folder."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from detlab.client import AsyncClient
from detlab.client.bundling.bundle import Bundle
from detlab.client.transport.discovery import find_cluster
from detlab.errors import BundleError, DetlabError, NotFound
from detlab.launch.welcome import FOLDER, NOTEBOOK, notebook_of, sources
from detlab.schemas.publish import json_schema
from detlab.schemas.taskconf import TaskConfig
from detlab.schemas.taskwire import TaskKind
from detlab_server.guard import GuardedHandler, reads, writes
from detlab_server.refusals import body_of, status_of
from detlab_server.submission import CodeBody, JudgeBody, SubmitBody, judge, pack, send, send_code, send_notebook
from detlab_server.version import VERSION


class DetlabHandler(GuardedHandler):
    """Base: answers a DetlabError as the master would."""

    @contextmanager
    def told(self) -> Iterator[None]:
        """Answer with what went wrong within."""
        try:
            yield
        except ValidationError as problem:
            self.set_status(422)
            self.finish(json.dumps({"code": "request.invalid", "message": _first(problem), "hint": None}))
        except DetlabError as problem:
            self.set_status(status_of(problem))
            self.finish(json.dumps(body_of(problem)))

    def root(self) -> str:
        """Return the folder of this server's files.

        Raises:
            BundleError: This server has no folder.
        """
        found = getattr(self.contents_manager, "root_dir", None)
        if not found:
            raise BundleError("this server's files are not on its disk, so no code can be uploaded from here")
        return str(found)

    async def packed(self, body: CodeBody) -> Bundle | None:
        """Pack the code that a body names.

        Raises:
            BundleError: The code cannot be packed, or this server has no folder.
        """
        return await asyncio.to_thread(pack, "" if body.context == "none" else self.root(), body)


class VersionHandler(DetlabHandler):
    """GET detlab/version: the handshake."""

    @reads
    async def get(self) -> None:
        """Answer {"server", "cluster", "hub", "page", "error", "hint"}.

        `server` is this half's version, `cluster` the master's or None, `hub` the origin of the Hub if this server is
        not one of its own (whose pages share its origin), `page` the path of the hub page there.
        """
        answer: dict[str, Any] = dict.fromkeys(("cluster", "hub", "page", "error", "hint")) | {"server": VERSION}
        try:
            address = find_cluster()
            parts = urlsplit(address.url)
            answer["page"] = parts.path
            if "JUPYTERHUB_SERVICE_PREFIX" not in os.environ:
                answer["hub"] = f"{parts.scheme}://{parts.netloc}"
            async with AsyncClient(address=address, timeout=10) as client:
                answer["cluster"] = (await client.get_cluster()).version
        except DetlabError as problem:
            answer["error"], answer["hint"] = problem.message, problem.hint
        self.finish(answer)


class SchemaHandler(DetlabHandler):
    """GET detlab/schema?kind=: the JSON Schema of an experiment's or a notebook run's config, for the form."""

    @reads
    async def get(self) -> None:
        """Answer the schema of this version."""
        self.finish(_schema(self.get_query_argument("kind", "experiment")))


class CodeHandler(DetlabHandler):
    """POST detlab/code: pack what is in the user's folder and upload it."""

    @writes
    async def post(self) -> None:
        """Take a `CodeBody`; answer {"bundle", "files", "size"}."""
        with self.told():
            body = CodeBody.model_validate_json(self.request.body or b"{}")
            bundle = await self.packed(body)
            async with AsyncClient() as client:
                self.finish(await send_code(client, bundle))


class JudgeHandler(DetlabHandler):
    """POST detlab/judge: what the master says about a config, as it is typed."""

    @writes
    async def post(self) -> None:
        """Take a `JudgeBody`; answer {"problems", "config", "parameters"}."""
        with self.told():
            body = JudgeBody.model_validate_json(self.request.body or b"{}")
            async with AsyncClient() as client:
                self.finish(await judge(client, self.root(), body))


class SubmitHandler(DetlabHandler):
    """POST detlab/submit: pack what is in the user's folder and submit it."""

    @writes
    async def post(self) -> None:
        """Take a `SubmitBody`; answer what was made, or every mistake at once."""
        with self.told():
            body = SubmitBody.model_validate_json(self.request.body or b"{}")
            async with AsyncClient() as client:
                if body.kind == "notebook_run":
                    self.finish(await send_notebook(client, self.root(), body))
                else:
                    self.finish(await send(client, body, await self.packed(body)))


class TutorialHandler(DetlabHandler):
    """GET detlab/tutorial: the tutorial notebook, which the front end puts into the user's folder."""

    @reads
    async def get(self) -> None:
        """Answer {"name", "content"}: the file's name and the notebook."""
        with self.told():
            self.finish(await asyncio.to_thread(_tutorial))


def _tutorial() -> dict[str, Any]:
    """Return the tutorial, under the name that a newcomer's file browser has it.

    Raises:
        NotFound: The installation lacks it.
    """
    found = sources()
    if found is None:
        hint = "install the wheel of detlab, or copy docs/ and examples/"
        raise NotFound("this installation has no tutorial", hint=hint, status=404)
    page, _ = found
    return {"name": f"{FOLDER}/{NOTEBOOK}", "content": notebook_of(page.read_text(encoding="utf-8"))}


@cache
def _schema(kind: str) -> str:
    return json.dumps(TaskConfig.model_json_schema() if kind == TaskKind.NOTEBOOK_RUN else json_schema())


def _first(problem: ValidationError) -> str:
    found = problem.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(str(part) for part in found['loc'])}: {found['msg']}"
