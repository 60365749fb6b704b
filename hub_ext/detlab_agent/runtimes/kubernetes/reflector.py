"""What the API server has of one kind of objects, kept up to date: list, then watch, and list again where that breaks.

The pattern is that of client-go's Reflector: bookmarks keep the position young, 410 (history is gone) means to list
anew, and every other trouble means to continue from the position after a pause.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from detlab.backoff import Backoff
from detlab_agent.runtimes.kubernetes.api import Api, ApiAway, ApiRefused, Object

_log = logging.getLogger(__name__)

PAGE = 500
"""Objects in one answer of a list."""
WATCH_SECONDS = 300
"""Seconds after which the server ends a watch; another follows."""
SILENCE = 120.0
"""Seconds without a byte after which a watch counts as dead: bookmarks come about every minute."""
SHORT = 1.0
"""Seconds: a watch that ends sooner is followed by a pause."""
LAST_SECONDS = 60.0
"""Seconds for which the last state of an object is kept after its end, where it is kept."""
_GONE = 410


def name_of(made: Object) -> str:
    """Return the name of an object, by which those of one namespace are told apart."""
    return str(made["metadata"]["name"])


@dataclass
class Reflector:
    """Keeps up with one kind of objects.

    Args:
        api: The client.
        path: Of the objects.
        keep: Returns what is kept of an object; None: nothing is, as if it did not exist.
        on_change: Called with the name of an object that has changed, or is gone.
        labels: A selector of labels.
        fields: A selector of fields.
        backoff: Pauses after trouble.
        draw: Source of randomness, uniform in [0, 1).
        key: Returns what an object is kept by.
        keeps_last: Whether the last state of an object that is gone is kept for a while, with the key `gone`.
    """

    api: Api
    path: str
    keep: Callable[[Object], Object | None]
    on_change: Callable[[str], None] = lambda name: None
    labels: str | None = None
    fields: str | None = None
    key: Callable[[Object], str] = name_of
    keeps_last: bool = False
    backoff: Backoff = field(default_factory=lambda: Backoff(first=0.2, cap=15.0))
    draw: Callable[[], float] = random.SystemRandom().random
    items: dict[str, Object] = field(default_factory=dict, init=False)
    trouble: str = field(default="", init=False)
    """Why it is not up to date; "": it is."""
    _position: str = field(default="", init=False)
    _synced: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _waiters: dict[str, asyncio.Event] = field(default_factory=dict, init=False)
    _job: asyncio.Task[None] | None = field(default=None, init=False)

    def start(self) -> None:
        """Begin, in the running loop."""
        self._job = asyncio.create_task(self._run())

    async def close(self) -> None:
        """End."""
        if self._job is not None:
            self._job.cancel()
            await asyncio.gather(self._job, return_exceptions=True)

    async def synced(self) -> None:
        """Wait for the first list."""
        await self._synced.wait()

    def next_change(self, name: str) -> asyncio.Event:
        """Return the event that is set when an object changes after this call, or is gone."""
        return self._waiters.setdefault(name, asyncio.Event())

    def put(self, made: Object) -> None:
        """Take in an object that was just made or read: the watch may say it later."""
        name = self.key(made)
        if name not in self.items:
            self._take(made)

    def forget(self, name: str) -> None:
        """Take in that an object does not exist."""
        if self.items.pop(name, None) is not None:
            self._tell(name)

    # --- inside -------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                if not self._position:
                    await self._list()
                began = time.monotonic()
                await self._watch()
                if time.monotonic() - began > SHORT:
                    continue
            except ApiRefused as error:
                if error.code == _GONE:
                    self._position = ""
                    continue
                self._say(f"{self.path}: {error}")
            except ApiAway as error:
                self._say(str(error))
            except Exception:
                # Whatever it is, the state of the cluster must be known again after a while.
                _log.exception("%s: the reflector failed", self.path)
                self._position = ""
            await asyncio.sleep(self.backoff.next_pause())

    def _say(self, trouble: str) -> None:
        if trouble != self.trouble:
            _log.warning("%s; trying again", trouble)
        self.trouble = trouble

    def _well(self) -> None:
        if self.trouble:
            _log.info("%s: up to date again", self.path)
        self.trouble = ""
        self.backoff.reset()

    async def _list(self) -> None:
        found: dict[str, Object] = {}
        query: dict[str, Any] = {"labelSelector": self.labels, "fieldSelector": self.fields, "limit": PAGE}
        while True:
            page = await self.api.ask("GET", self.path, **query)
            for made in page.get("items") or ():
                kept = self.keep(made)
                if kept is not None:
                    found[self.key(made)] = kept
            meta = page.get("metadata") or {}
            if not meta.get("continue"):
                break
            query["continue"] = meta["continue"]
        before, self.items = self.items, found
        self._position = str(meta.get("resourceVersion") or "")
        self._synced.set()
        self._well()
        for name in {*before, *found}:
            if before.get(name) != found.get(name):
                self._tell(name)

    async def _watch(self) -> None:
        query: dict[str, Any] = {
            "labelSelector": self.labels,
            "fieldSelector": self.fields,
            "resourceVersion": self._position,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": round(WATCH_SECONDS * (1 + self.draw())),  # not all at the same time
        }
        async for event in self.api.watch(self.path, SILENCE, **query):
            self._well()
            made = event.get("object") or {}
            meta = made.get("metadata") or {}
            self._position = str(meta.get("resourceVersion") or self._position)
            match event.get("type"):
                case "ADDED" | "MODIFIED":
                    self._take(made)
                case "DELETED":
                    self._take_last(made)

    def _take(self, made: Object) -> None:
        name = self.key(made)
        kept = self.keep(made)
        if kept is None:
            self.forget(name)
        elif self.items.get(name) != kept:
            self.items[name] = kept
            self._tell(name)

    def _take_last(self, made: Object) -> None:
        """Take in the last state of an object, so that those who wait see it, and then that it is gone."""
        name = self.key(made)
        kept = self.keep(made) if self.keeps_last else None
        if kept is None:
            self.forget(name)
            return
        kept["gone"] = True
        self.items[name] = kept
        self._tell(name)
        asyncio.get_running_loop().call_later(LAST_SECONDS, self._forget_last, name, kept)

    def _forget_last(self, name: str, kept: Object) -> None:
        if self.items.get(name) is kept:
            del self.items[name]

    def _tell(self, name: str) -> None:
        waiting = self._waiters.pop(name, None)
        if waiting is not None:
            waiting.set()
        self.on_change(name)
