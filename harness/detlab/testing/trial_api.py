"""What a master says to the code of a trial (`task/*`): the part of `detlab.testing.master` that needs no allocation.

with MasterDouble() as master:
    task = make_task_dir(tmp_path, master.url, storage={…})
    master.preempt()
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from detlab.schemas import wire
from detlab.schemas.checkpoint_ids import made_for
from detlab.schemas.taskwire import StoredItem, StoredPage, StoredVerdicts

TOKEN = "dttask_test"  # noqa: S105  (opens nothing)
_TRIAL = 7


@dataclass(frozen=True, slots=True)
class TrialApiFault:
    """What goes wrong with one request.

    Attributes:
        path: A part of the path below `api/v1/`, such as `task/checkpoints`, or `records` for all of these.
        status: Answered instead of carrying the request out; 0: carried out, but the answer never arrives.
        code: Error code of the answer.
    """

    path: str
    status: int
    code: str = "internal"


class TrialApi:
    """The state of one trial, and what was asked for.

    Attributes:
        tokens: What is accepted as bearer token, beside those of allocations.
        checkpoints: Committed ones, by uuid, as the replies show them.
        metadata: Of the trial.
        run: Number of the attempt that runs; earlier ones are over.
        best: Best validation of the experiment.
        storage_credentials: Short-lived ones for the storage; none by default.
        matrices: Those that governed trials have recorded.
        verified: Requests to verify the evidence of a checkpoint.
        refusals: What is answered to these.
        preflights: Reports of what was found before the first step.
        preflight_refusals: What is answered to these.
        acks: Preemption acknowledgements received.
        calls: `METHOD path` of every request.
        faults: Each is used up by the first request that it fits.
        changed: Notified whenever any of it changes.
    """

    def __init__(self) -> None:
        self.tokens = {TOKEN}
        self.checkpoints: dict[str, dict[str, Any]] = {}
        self.metadata: dict[str, Any] = {}
        self.run = 1
        self.best: float | None = None
        self.storage_credentials = wire.StorageCredentials()
        self.matrices: list[dict[str, Any]] = []
        self.verified: list[dict[str, Any]] = []
        self.refusals: list[dict[str, str]] = []
        self.preflights: list[dict[str, Any]] = []
        self.preflight_refusals: list[dict[str, str]] = []
        self.acks = 0
        self.calls: list[str] = []
        self.faults: list[TrialApiFault] = []
        self.changed = threading.Condition()
        self._preempted = False
        self._stopping = False

    def preempt(self, on: bool = True) -> None:
        """Turn the preemption signal on (or, for the next attempt, off)."""
        with self.changed:
            self._preempted = on
            self.changed.notify_all()

    def wait_for_call(self, call: str, count: int = 1, timeout: float = 20.0) -> None:
        """Wait until `METHOD path` was requested `count` times.

        Raises:
            TimeoutError: It was not.
        """
        with self.changed:
            if not self.changed.wait_for(lambda: self.calls.count(call) >= count, timeout):
                raise TimeoutError(f"{call} was requested {self.calls.count(call)} times in {timeout} s")

    def note_call(self, call: str) -> TrialApiFault | None:
        """Count a request and return what shall go wrong with it."""
        with self.changed:
            self.calls.append(call)
            self.changed.notify_all()
            path = call.split(" ", 1)[1]
            fault = next((fault for fault in self.faults if fault.path in path), None)
            if fault is not None:
                self.faults.remove(fault)
            return fault

    def poll_preemption(self, seconds: float) -> dict[str, Any]:
        """Wait for the preemption signal; return the reply."""
        with self.changed:
            self.changed.wait_for(lambda: self._preempted or self._stopping, seconds)
            return {"preempt": self._preempted, "reason": "pause"}

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Carry any other request out; return status and body."""
        match (method, path.split("/")):
            case ("POST", ["preempt", "ack"]):
                self.acks += 1
                return 200, {}
            case ("POST", ["checkpoints"]):
                return 200, self._commit(body)
            case ("GET", ["checkpoints", uuid]) if uuid in self.checkpoints:
                return 200, self.checkpoints[uuid]
            case ("DELETE", ["checkpoints", uuid]) if uuid in self.checkpoints:
                return 200, self.checkpoints.pop(uuid)
            case ("PUT", ["governance", said]):
                return 200, self._governed(said, body)
            case ("POST", ["checkpoints", uuid, "verification"]) if uuid in self.checkpoints:
                self.verified.append({"uuid": uuid, **body})
                return 200, {"refusals": self.refusals}
            case ("GET", ["metadata"]):
                return 200, self.metadata
            case ("PUT", ["metadata"]):
                self.metadata = body
                return 200, body
            case ("GET", ["best-validation"]):
                return 200, wire.BestValidationReply(value=self.best).model_dump()
            case ("GET", ["storage-credentials"]):
                return 200, self.storage_credentials.model_dump()
            case ("POST", ["storage-check"]):
                known = {one.uuid: self._verdict(one) for one in StoredPage.model_validate(body).items}
                return 200, StoredVerdicts(verdicts=known).model_dump()
        return 404, {"code": "not_found", "message": f"no task/{path}"}

    def _governed(self, said: str, body: Any) -> dict[str, Any]:
        if said == "matrix":
            self.matrices.append(body["matrix"])
            return {}
        self.preflights.append(body)
        return {"refusals": body["refusals"] or self.preflight_refusals}

    def _commit(self, body: Any) -> dict[str, Any]:
        commit = wire.CommitCheckpoint.model_validate(body)
        view = wire.CheckpointView(**commit.model_dump(), trial_id=_TRIAL, experiment_id=3)
        reply: dict[str, Any] = view.model_dump(mode="json")
        return self.checkpoints.setdefault(commit.uuid, reply)

    def _verdict(self, one: StoredItem) -> str:
        if one.uuid in self.checkpoints:
            return "kept"
        ours = [mark.run for mark in one.marks if mark.owner.endswith(f"-{_TRIAL}")]
        if not ours or not made_for(one.uuid, _TRIAL):
            return "unknown"
        return "never" if max(ours) < self.run else "busy"
