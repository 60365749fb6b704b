"""The part of a spawner that handles an allocation of the master: post, follow, claim, release, find again."""

from __future__ import annotations

import asyncio
import secrets
import ssl
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Any, ClassVar

import httpx
from jupyterhub.spawner import Spawner
from traitlets import Integer, List, Unicode, default

from detlab.errors import ConfigError, DetlabError, NotFound, Problem
from detlab.schemas.taskwire import SpawnRequest, SpawnView
from detlab.trust import system_trust
from detlab_hub.spawners import form, options
from detlab_hub.spawners.client import SpawnClient, StreamEnded, passes, read_token, shared
from detlab_hub.spawners.progress import News
from detlab_hub.spawners.wording import SpawnFailed, ended, failure_of, progress_of, status_of

LONGEST_WAIT = 30 * 86400
"""Seconds that `start()` may take: queueing is not a failure."""
FORM_PATIENCE = 3.0
"""Seconds that a page waits for the master before it shows the form without the master's answer."""
PORT_TAKEN = 98
"""Exit code of `detlab.launch.hub_server` when another process has its port."""
PORT_ATTEMPTS = 3
_background: set[asyncio.Task[Any]] = set()


class AllocationMixin(Spawner):
    """A spawner whose server runs only while the master gives it an allocation."""

    service_url = Unicode(
        "http://127.0.0.1:8643/services/detlab/", help="How this Hub reaches the master; ends with /services/detlab/."
    ).tag(config=True)
    service_token = Unicode(help="The spawners' token for the master, `dthub_…`.").tag(config=True)
    service_token_file = Unicode(help="File that holds the spawners' token; read at every call.").tag(config=True)
    servers_certificate_file = Unicode(
        help="Certificate of the authority that signs those of servers on other nodes, as the master's."
    ).tag(config=True)
    cluster_url = Unicode(help="Public address of the Hub, as DET_URL in servers; empty: none is set.").tag(config=True)
    pools = List(Unicode(), ["default"], help="Resource pools that the form offers.").tag(config=True)
    images = List(Unicode(), help="Container images that the form proposes.").tag(config=True)
    runtimes = List(
        Unicode(), ["process", "docker"], help="Which runtimes this site offers: process, docker, or both."
    ).tag(config=True)
    answer_timeout = Integer(
        180, help="Seconds from the start of a server's process until it must answer; queueing does not count."
    ).tag(config=True)
    stop_timeout = Integer(60, help="Seconds that a server may take to end.").tag(config=True)
    master_patience = Integer(300, help="Seconds without an answer of the master until a start is given up.").tag(
        config=True
    )

    offers_idle: ClassVar[bool] = True
    """Whether users may say when an unused server ends."""
    refused_forms: ClassVar[dict[str, dict[str, Any]]] = {}
    """Users' input of refused forms, so that it need not be typed again."""

    @default("start_timeout")
    def _wait_long(self) -> int:
        return LONGEST_WAIT

    @default("poll_interval")
    def _poll_often(self) -> int:
        return 10

    @default("env_keep")
    def _keep_nothing(self) -> list[str]:
        return []  # what is right for the Hub's machine is wrong for the node's

    @default("options_form")
    def _own_form(self) -> Any:
        return type(self).render_form

    @default("options_from_form")
    def _own_reader(self) -> Any:
        return self.read_form

    @default("apply_user_options")
    def _applied_by_master(self) -> Any:
        return lambda spawner, user_options: None

    def __init__(self, **kwargs: Any) -> None:
        self.task_id = ""
        self._over = False
        self._view: SpawnView | None = None
        self._posting: asyncio.Future[SpawnView] | None = None
        self._news = News()
        self._change = asyncio.Event()
        super().__init__(**kwargs)

    @property
    def master(self) -> SpawnClient:
        """The client of the master."""
        token = read_token(self.service_token_file) if self.service_token_file else self.service_token
        return shared(self.service_url, token)

    # --- what the user asks for

    async def render_form(self) -> str:
        """Return the options form."""
        chosen = self.refused_forms.pop(self.user.name, None) or dict(self.user_options or {})
        return form.render(
            pools=self.pools,
            images=self.images,
            runtimes=self.runtimes,
            chosen=chosen,
            idle=self.offers_idle,
            closed=await self._closed() if self.runtimes else {},
        )

    async def _closed(self) -> dict[str, str]:
        """Return which runtimes no node has now, and why; empty while the master does not answer."""
        try:
            return (await asyncio.wait_for(self.master.offers(self.user.name), FORM_PATIENCE)).closed
        except (DetlabError, TimeoutError) as error:
            self.log.info("the form offers every runtime: the master does not say which there are: %s", error)
            return {}

    def problems(self, chosen: Any) -> list[Problem]:
        """Return every error in the user options."""
        return options.read(chosen, runtimes=self.runtimes)[1]

    def read_form(self, data: dict[str, list[Any]]) -> dict[str, Any]:
        """Return the user options of a submitted form.

        Raises:
            SpawnFailed: The options are wrong; it lists every error.
        """
        chosen = options.from_form(data)
        problems = self.problems(chosen)
        if problems:
            self.refused_forms[self.user.name] = chosen
            raise _refusal(problems)
        return chosen

    def wanted(self) -> options.SpawnOptions:
        """Return the options of the requested server.

        Raises:
            SpawnFailed: The options are wrong; it lists every error.
        """
        problems = self.problems(self.user_options or {})
        if problems:
            raise _refusal(problems)
        return options.read(self.user_options or {}, runtimes=self.runtimes)[0]

    def request(self, wanted: options.SpawnOptions) -> SpawnRequest:
        """Return the request to the master, under a new key."""
        return SpawnRequest(
            owner=self.user.name,
            groups=sorted(group.name for group in self.user.groups),
            server_name=self.name,
            key=secrets.token_hex(16),
            kind=wanted.kind,
            name=wanted.name or (self.display_name or "")[: options.NAME_CHARS],
            config=wanted.config,
            experiment_ids=wanted.experiment_ids,
            trial_ids=wanted.trial_ids,
            bundle=wanted.bundle,
            template=wanted.template,
            base_url=self.server.base_url if self.server else "/",
            server_host=self.user.host if self.user.settings.get("subdomain_host") else "",
            environment={name: str(value) for name, value in self.get_env().items() if value is not None},
        )

    def get_env(self) -> dict[str, str]:
        """Return the server's environment: the Hub's, and the cluster's address."""
        env: dict[str, str] = super().get_env()
        if self.cluster_url:
            env["DET_URL"] = self.cluster_url
        return env

    # --- waiting

    async def allocate(self, request: SpawnRequest, *, answers: bool = True) -> SpawnView:
        """Wait until the request is placed and its server answers; return its state then.

        A cancelled wait releases the allocation.

        Args:
            request: The request to the master.
            answers: Whether to wait for an HTTP response of the server; else only until its task runs.

        Raises:
            SpawnFailed: It ended before that, or the master refused it.
        """
        self.task_id, self._over, self._view = "", False, None
        feed = asyncio.create_task(self._feed(request))
        up = asyncio.create_task(self._come_up(request, answers=answers))
        try:
            await asyncio.wait({feed, up}, return_when=asyncio.FIRST_COMPLETED)
            if feed.done():
                view = feed.result()
                raise failure_of(view, self._where_logs_are())
            up.result()
            return await self._persist(lambda: self.master.claim(self.task_id))
        except BaseException:
            self._release_soon()
            raise
        finally:
            for task in (feed, up):
                task.cancel()
            await asyncio.gather(feed, up, return_exceptions=True)

    async def _feed(self, request: SpawnRequest) -> SpawnView:
        """Keep the master's lease alive and the task's state up to date here, until the task has ended."""
        while True:
            # a master that was restarted has lost the environment: the same key finds the task and brings it again
            view = await self._persist(lambda: self._post(request))
            self._note(view)
            if ended(view):
                return view
            try:
                async for view in self.master.follow(self.task_id):
                    self._note(view)
                    if ended(view):
                        return view
            except StreamEnded as error:
                self.log.info("the stream of %s ended: %s", self.task_id, error)
                await asyncio.sleep(0.2)
            except DetlabError as error:
                if not passes(error):
                    raise _said_by_master(error) from error
                await asyncio.sleep(0.5)

    async def _post(self, request: SpawnRequest) -> SpawnView:
        """Post in a separate task: a canceled start must still learn which allocation it made."""
        self._posting = asyncio.ensure_future(self.master.post(request))
        view = await asyncio.shield(self._posting)
        self.task_id = view.task_id
        return view

    async def _persist(self, call: Any, patience: float | None = None) -> SpawnView:
        """Call the master, again while it is away, for `patience` seconds (default: `master_patience`).

        Raises:
            SpawnFailed: The master refuses, or stays away.
        """
        deadline = time.monotonic() + (self.master_patience if patience is None else patience)
        pause = 0.2
        while True:
            try:
                view: SpawnView = await call()
                return view
            except DetlabError as error:
                if not passes(error):
                    raise _said_by_master(error) from error
                if time.monotonic() > deadline:
                    raise SpawnFailed(
                        f"The master of the cluster does not answer: {error.message}",
                        reason="master_away",
                        status_code=503,
                    ) from error
            self._news.say(0, "The master does not answer now; trying again")
            await asyncio.sleep(pause)
            pause = min(2 * pause, 2.0)

    def _note(self, view: SpawnView) -> None:
        self._view = view
        self._over = ended(view)
        if not self._over:
            self._news.say(*progress_of(view))
            self._moved()

    def _moved(self) -> None:
        event, self._change = self._change, asyncio.Event()
        event.set()

    async def _come_up(self, request: SpawnRequest, *, answers: bool) -> None:
        """Return when the server answers (or its task runs)."""
        while self._view is None or self._view.allocation_state != "RUNNING" or (answers and not self._view.port):
            await self._change.wait()
        if not answers:
            return
        deadline = time.monotonic() + self.answer_timeout
        secure = self._trust(self._view)
        async with httpx.AsyncClient(timeout=2.0, trust_env=False, verify=secure) as client:
            pause = 0.03
            while not await _answers(client, f"{self.address_of(self._view)}{request.base_url}api"):
                if time.monotonic() > deadline:
                    raise SpawnFailed(
                        f"The server did not answer within {self.answer_timeout} seconds{_by_tls(self._view)}.",
                        reason="timeout",
                    )
                await asyncio.sleep(pause)
                pause = min(1.3 * pause, 0.25)

    @staticmethod
    def address_of(view: SpawnView) -> str:
        """Return the address of a server that runs."""
        host = view.address or "127.0.0.1"
        scheme = "https" if view.secure else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{view.port}"

    def _trust(self, view: SpawnView) -> bool | ssl.SSLContext:
        """Return how to verify the server's certificate, for httpx."""
        if view.secure and self.servers_certificate_file:
            return ssl.create_default_context(cafile=self.servers_certificate_file)
        return system_trust(self.address_of(view))  # without TLS, no certificates are read (50 ms)

    def _where_logs_are(self) -> str:
        return f"The whole log: det task logs {self.task_id}" if self.task_id else ""

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the progress of the start; the Hub ends it."""
        async for percent, text in self._news.lines():
            yield {"progress": percent, "message": text}

    # --- the end, and the Hub's own restart

    def _release_soon(self) -> None:
        """Release the allocation in the background: canceling a start does not wait for that."""
        posting, known = self._posting, self.task_id
        if self._over or (not known and posting is None):
            return

        async def release() -> None:
            task_id = known
            if not task_id and posting is not None:
                task_id = (await posting).task_id
            await self._end(task_id)

        _in_background(self._quietly(release()))

    async def _quietly(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        except (DetlabError, SpawnFailed) as error:
            # the master ends by itself what the Hub does not list
            self.log.warning("%s: not released: %s", self._log_name, error)

    async def _end(self, task_id: str) -> SpawnView | None:
        """End a task and wait for that; None if the master does not know it.

        A master that stays away later ends, by itself, the tasks that the Hub no longer lists.

        Raises:
            SpawnFailed: The master stays away, or the task does not end in time.
        """
        deadline = time.monotonic() + self.stop_timeout
        pause = 0.05
        try:
            view = await self._persist(lambda: self.master.delete(task_id), self.stop_timeout)
            while not ended(view):
                if time.monotonic() > deadline:
                    raise SpawnFailed(f"{task_id} did not end within {self.stop_timeout} s", reason="stop")
                await asyncio.sleep(pause)
                pause = min(1.5 * pause, 0.5)
                view = await self._persist(lambda: self.master.get(task_id), self.stop_timeout)
        except SpawnFailed as error:
            if isinstance(error.__cause__, NotFound):
                return None
            raise
        return view

    async def start(self) -> Any:
        """Start the server; the class that this is mixed into implements it."""
        raise NotImplementedError

    async def stop(self, now: bool = False) -> None:
        """End the server and wait until it has."""
        if self.task_id and not self._over:
            await self._end(self.task_id)
            self._over = True

    async def poll(self) -> int | None:
        """Return None while the server runs or waits (a master that is away changes nothing), else its exit status."""
        if not self.task_id:
            return 0
        try:
            view = await self.master.get(self.task_id)
        except NotFound:
            self._over = True
            return 1
        except DetlabError as error:
            self.log.warning("%s: the master cannot be asked, taken as running: %s", self._log_name, error.message)
            return None
        self._view, self._over = view, ended(view)
        return status_of(view) if self._over else None

    def get_state(self) -> dict[str, Any]:
        """Return the state that the Hub keeps over its restart."""
        state: dict[str, Any] = super().get_state()
        if self.task_id:
            state["task_id"] = self.task_id
        return state

    def load_state(self, state: dict[str, Any]) -> None:
        """Take over a server that was started before the Hub's restart."""
        super().load_state(state)
        self.task_id = str(state.get("task_id") or "")

    def clear_state(self) -> None:
        """Forget the server. The Hub also calls this without a call of `stop`: nothing may be left behind."""
        super().clear_state()
        if self.task_id and not self._over:
            self._release_soon()
        self.task_id, self._posting = "", None


def _refusal(problems: list[Any]) -> SpawnFailed:
    text = "\n".join([form.headline(problems), *(f"- {problem}" for problem in problems)])
    return SpawnFailed(text, reason="options", html=form.problems_html(problems))


def _said_by_master(error: DetlabError) -> SpawnFailed:
    if isinstance(error, ConfigError) and error.problems:
        return _refusal([options.in_words(problem) for problem in error.problems])
    return SpawnFailed(str(error), reason=error.code.replace(".", "_"))


def _by_tls(view: SpawnView) -> str:
    if not view.secure:
        return ""
    node = view.agent_id or "its node"
    return f" by TLS: a server on {node} needs an agent, and an image, with the master's own version of detlab"


async def _answers(client: httpx.AsyncClient, url: str) -> bool:
    try:
        reply = await client.get(url)
    except httpx.HTTPError:
        return False
    return reply.status_code < 500


def _in_background(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.ensure_future(work)
    _background.add(task)
    task.add_done_callback(_background.discard)
