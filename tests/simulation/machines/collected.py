"""Searches whose checkpoints are collected while everything goes wrong: no pinned one is ever lost (I6).

Of three seeds one searches by promotion ASHA, one by hyperband, one by PBT. The user has them collected while they run
and after, with policies that keep next to nothing, bookmarks checkpoints, deletes and restores some, and starts further
experiments from others. Tasks with the real `Collector` remove the files, and die like all others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx

from detlab import errors
from detlab.client.operations import collection, edits
from detlab.client.operations.experiments import submit
from detlab.client.submission import Submission
from detlab.client.transport.calls import Flow, Retries
from detlab.client.transport.discovery import ClusterAddress
from detlab.client.transport.session import Session
from detlab.info import read_token
from detlab.run.collect import Collector
from detlab.schemas.wire.storage import GcPolicy, GcRequest
from detlab.storage.manifest import MANIFEST_NAME
from detlab.storage.posix import PosixStorage
from detlab_hub.services import Settings
from simulation.checks.journal import TERMINAL
from simulation.loop import Process, as_thread, block
from simulation.machines.steered import USER, Steered, SteeredPromises
from simulation.machines.trial import HttpBridge

if TYPE_CHECKING:
    from simulation.machines.trial import Trial

TRASH = 4.0
DEEDS = 14
_ENDED = f"({', '.join(repr(state) for state in TERMINAL)})"
_NEWEST = f"""
    SELECT c.uuid, 'trial ' || t.id || ' resumes from it' FROM trials t
    JOIN checkpoints c ON c.trial_id = t.id AND c.run >= t.first_run
    WHERE t.state NOT IN {_ENDED} AND c.state != 'COMPLETED' AND NOT EXISTS (
        SELECT 1 FROM checkpoints d WHERE d.trial_id = t.id AND d.run >= t.first_run
        AND (d.steps_completed, d.created_at, d.uuid) > (c.steps_completed, c.created_at, c.uuid))"""
_PARENTS = f"""
    SELECT c.uuid, 'trial ' || t.id || ' starts from it' FROM trials t
    JOIN checkpoints c ON c.uuid = t.parent_checkpoint WHERE t.state NOT IN {_ENDED} AND c.state != 'COMPLETED'"""
_SOURCES = f"""
    SELECT c.uuid, 'experiment ' || e.id || ' starts from it' FROM experiments e
    JOIN checkpoints c ON c.uuid = json_extract(e.config, '$.searcher.source_checkpoint_uuid')
    WHERE e.state NOT IN {_ENDED} AND c.state != 'COMPLETED'"""
_BOOKMARKS = """
    SELECT c.uuid, b.name || ' has bookmarked it' FROM checkpoint_bookmarks b
    JOIN checkpoints c ON c.uuid = b.uuid WHERE c.state != 'COMPLETED'"""
PINS = (_NEWEST, _PARENTS, _SOURCES, _BOOKMARKS)
"""What is lost although something needs it; asked of the tables, not of the code that finds pins."""


class CollectedPromises(SteeredPromises):
    """The promise of collection (I6), beside those of any search."""

    world: Collected

    def _check_rows(self) -> None:
        super()._check_rows()
        self._check_pinned()

    def _check_pinned(self) -> None:
        self.checks["I6"] += 1
        for query in PINS:
            for uuid, why in self._all(query):
                self._broken("I6", f"checkpoint {uuid} is deleted, and {why}")
        gone = {uuid for (uuid,) in self._all("SELECT uuid FROM checkpoints WHERE state = 'DELETED'")}
        living = {number for (number,) in self._all(f"SELECT id FROM experiments WHERE state NOT IN {_ENDED}")}
        for number, needed in self._journals.needed().items():
            if number in living and (lost := sorted(needed & gone)):
                self._broken("I6", f"checkpoints {lost} are deleted, and the search of experiment {number} needs them")
            self.checks["I6 needed by searches"] += len(needed)
        for (uuid,) in self._all("SELECT uuid FROM checkpoints WHERE state = 'COMPLETED'"):
            if not (self.world.checkpoints / uuid / MANIFEST_NAME).exists():
                self._broken("I6", f"the files of checkpoint {uuid} are gone, and it is not deleted")

    def removes(self, uuid: str) -> None:
        """A task is about to remove files: the master must have said so for good."""
        found = self._one(
            "SELECT c.state, r.begun_at FROM checkpoints c LEFT JOIN checkpoint_removals r ON r.uuid = c.uuid "
            "WHERE c.uuid = ?",
            uuid,
        )
        self.checks["I6 removed"] += 1
        if found is None or found[0] != "DELETED":
            self._broken("I6", f"the files of checkpoint {uuid} are removed, and it is {found}")

    def check_end(self) -> None:
        """What was seen to be gone is gone, and booked once."""
        super().check_end()
        waiting = "SELECT uuid FROM checkpoint_removals"
        query = f"SELECT uuid, size FROM checkpoints WHERE state = 'DELETED' AND uuid NOT IN ({waiting})"
        sizes = dict(self._all(query))
        for uuid in sizes:
            if (self.world.checkpoints / uuid).exists():
                self._broken("I6", f"checkpoint {uuid} was reported as gone, and is there")
        (freed,) = self._one("SELECT coalesce(sum(bytes), 0) FROM storage_freed")
        if freed != sum(sizes.values()):
            self._broken("I6", f"{freed} bytes are booked as freed, {sum(sizes.values())} are gone")
        self.checks["checkpoints gone"] += len(sizes)


class Watched(PosixStorage):
    """The real store of a task that removes; each removal takes a while, is noted, and may be its last."""

    def __init__(self, trial: Trial) -> None:
        super().__init__(trial.node.world.checkpoints)
        self._trial = trial

    def delete(self, uuid: str, *, owner: int | None = None) -> None:
        """Remove it, as the promises allow."""
        promises = self._trial.node.world.promises
        assert isinstance(promises, CollectedPromises)
        block(asyncio.sleep(0.2))
        promises.removes(uuid)
        super().delete(uuid, owner=owner)
        block(asyncio.sleep(0.2))


class TaskMaster:
    """The requests of `detlab.run.collect` on the simulated network, repeated while there is no reply."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._client = httpx.Client(transport=HttpBridge(trial.node), base_url="http://master/services/detlab/api/v1/")

    def list(self) -> dict[str, Any]:
        """See `detlab.run.collect.CollectionClient`."""
        return self._ask("GET", None)

    def report(
        self, items: Sequence[Mapping[str, Any]], event_files: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """See `detlab.run.collect.CollectionClient`."""
        told = {} if event_files is None else {"event_files": dict(event_files)}
        return self._ask("POST", {"items": list(items), **told})

    def _ask(self, verb: str, body: Any) -> dict[str, Any]:
        while True:
            headers = {"Authorization": f"Bearer {read_token(self._trial.directory.root)}"}
            try:
                reply = self._client.request(verb, "task/collection", json=body, headers=headers)
                if reply.status_code < 500:
                    break
            except httpx.TransportError:
                pass
            block(asyncio.sleep(1.0))
        if reply.status_code != 200:
            raise errors.from_reply(reply.status_code, reply.json())
        found: dict[str, Any] = reply.json()
        return found


class Collected(Steered):
    """The course of things."""

    promises: CollectedPromises

    def _make_promises(self) -> CollectedPromises:
        return CollectedPromises(self)

    def _settings(self) -> Settings:
        return replace(super()._settings(), trash_window=TRASH, gc_delay=1.0)

    def _config(self, key: str) -> dict[str, Any]:
        if not key.startswith("warm "):
            return super()._config(key)
        searcher = {"name": "single", "metric": "loss", "source_checkpoint_uuid": key.split()[1]}
        return super()._config("small") | {"name": key, "searcher": searcher}

    def _start_clients(self) -> list[asyncio.Task[Any]]:
        owner = Process(self.loop, "client owner", "client")
        return [*super()._start_clients(), owner.spawn(as_thread(self._collect))]

    def _over(self) -> bool:
        due = "SELECT count(*) FROM checkpoint_removals WHERE due_at <= ?"
        return super()._over() and not self.promises._one(due, self.clock("master") + TRASH)[0]

    def collect(self, trial: Trial) -> int:
        """Do what the task of a collection does, with the real collector."""
        return Collector(TaskMaster(trial), lambda block: Watched(trial), lambda line: None).run()

    # --- the user

    def _collect(self) -> None:
        session = Session(
            ClusterAddress("http://master/services/detlab/", f"user-{USER}", "the simulation"),
            backoff=Retries(attempts=400, refused=400),
            transport=HttpBridge(self.nodes[0]),
            sleep=lambda seconds: block(asyncio.sleep(seconds)),
        )
        while "search" not in self.promises.submitted:
            block(asyncio.sleep(0.5))
        for _ in range(DEEDS):
            block(asyncio.sleep(self._acts.uniform(0.5, 4.0)))
            kind, flow = self._deed(self.promises.submitted["search"])
            if flow is not None:
                self._done(session, kind, flow)
        bookmarked = self.promises._all("SELECT uuid FROM checkpoint_bookmarks")
        self.promises.checks["bookmarked to the end"] += len(bookmarked)

    def _deed(self, number: int) -> tuple[str, Flow[Any] | None]:
        saved = [one for (one,) in self.promises._all("SELECT uuid FROM checkpoints ORDER BY created_at, uuid")]
        best, latest = self._acts.choice((0, 1)), self._acts.choice((0, 1))
        policy = GcPolicy(save_experiment_best=best, save_trial_best=0, save_trial_latest=latest)
        wanted = GcRequest(policy=policy, now=True, purge=self._acts.random() < 0.3)
        some = self._acts.choice(saved) if saved else None
        deeds: dict[str, Flow[Any] | None] = {
            "collected": collection.collect(number, wanted),
            "collected again": collection.collect(number, GcRequest(now=True, purge=True)),
            "previewed": collection.preview(number, None),
        }
        if some is not None:
            config = self._config(f"warm {some}")
            deeds |= {
                "bookmarked": collection.bookmark(some, "kept"),
                "unbookmarked": collection.unbookmark(some),
                "deleted": edits.delete_checkpoint(some, now=self._acts.random() < 0.3),
                "restored": collection.undelete(some),
                "started from": submit(Submission(config, key=f"warm {some}")),
            }
        kind = self._acts.choice(list(deeds))
        return kind, deeds[kind]
