"""Operations on what an experiment keeps of its checkpoints: previews, policies, the trash, bookmarks."""

from __future__ import annotations

from urllib.parse import quote

from detlab.client.operations.experiments import one, pages
from detlab.client.transport.calls import Call, Flow, model, valid_request
from detlab.schemas.wire import CheckpointView
from detlab.schemas.wire.storage import Bookmark, GcPolicy, GcPreview, GcRequest, Pin, PinList


def policy(best: int, trial_best: int, trial_latest: int) -> GcPolicy:
    """Return a policy.

    Raises:
        ConfigError: A number is negative.
    """
    numbers = {"save_experiment_best": best, "save_trial_best": trial_best, "save_trial_latest": trial_latest}
    with valid_request("this is no policy for checkpoints"):
        return GcPolicy.model_validate(numbers)


def preview(experiment_id: int, wanted: GcPolicy | None) -> Flow[GcPreview]:
    """Fetch what a policy, or the experiment's own, would remove and keep."""
    params = {} if wanted is None else wanted.model_dump()
    return one(Call("GET", _gc(experiment_id), params=params, parse=model(GcPreview)))


def collect(experiment_id: int, request: GcRequest) -> Flow[GcPreview]:
    """Change the policy, and collect; names the wanted result, so this can safely be repeated."""
    return one(Call("POST", _gc(experiment_id), json=request, parse=model(GcPreview)))


def undelete(uuid: str) -> Flow[CheckpointView]:
    """Take a checkpoint out of the trash; can safely be repeated."""
    return one(Call("POST", f"{_checkpoint(uuid)}/undelete", parse=model(CheckpointView)))


def pins(uuid: str) -> Flow[PinList]:
    """Fetch what keeps a checkpoint."""
    return PinList(items=(yield from pages(f"{_checkpoint(uuid)}/pins", Pin, "skip", None)))


def bookmark(uuid: str, note: str) -> Flow[PinList]:
    """Pin a checkpoint for the caller; can safely be repeated."""
    with valid_request():
        body = Bookmark(note=note)
    return one(Call("PUT", f"{_checkpoint(uuid)}/bookmark", json=body, parse=model(PinList)))


def unbookmark(uuid: str) -> Flow[PinList]:
    """Remove a bookmark; can safely be repeated."""
    return one(Call("DELETE", f"{_checkpoint(uuid)}/bookmark", parse=model(PinList)))


def _gc(experiment_id: int) -> str:
    return f"experiments/{int(experiment_id)}/gc"


def _checkpoint(uuid: str) -> str:
    return f"checkpoints/{quote(uuid, safe='')}"
