"""Operations on many experiments: as many requests as it takes, each repeatable, as every act says what is wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from detlab.client.transport.calls import Call, Flow, model, valid_request
from detlab.schemas.wire.batches import MOST_AT_ONCE, BatchItem, BatchReply, BatchRequest

Seen = Callable[[BatchItem], None]


def run(act: str, experiment_ids: Sequence[int] = (), seen: Seen | None = None, **wanted: Any) -> Flow[BatchReply]:
    """Do something with experiments, given by their ids or by the fields of `BatchRequest`; return all that came of it.

    Raises:
        ConfigError: A field is wrong, or the filter cannot be read.
    """
    with valid_request("this cannot be done to experiments"):
        requests = [BatchRequest(act=act, experiment_ids=part, **wanted) for part in _parts(experiment_ids)]
    whole = BatchReply(items=[])
    for request in requests:
        yield from _sent(request, whole, seen)
    return whole


def undo(reply: BatchReply, seen: Seen | None = None) -> Flow[BatchReply]:
    """Take back what was done, as the reply says."""
    whole = BatchReply(items=[])
    for request in reply.undo:
        yield from _sent(request, whole, seen)
    return whole


def _sent(request: BatchRequest, whole: BatchReply, seen: Seen | None) -> Flow[None]:
    """Send a request until there is nothing left of it; add what came of it to the whole."""
    waiting = [request]
    while waiting:
        now = waiting.pop()
        reply: BatchReply = yield Call("POST", "experiments/batch", json=now, parse=model(BatchReply))
        whole.items.extend(reply.items)
        whole.undo.extend(reply.undo)
        if seen is not None:
            for item in reply.items:
                seen(item)
        if reply.next is not None:
            waiting.append(now.model_copy(update={"before": reply.next}))
        if reply.left:
            waiting.append(now.model_copy(update={"filter": "", "before": None, "experiment_ids": reply.left}))


def _parts(experiment_ids: Sequence[int]) -> Iterator[list[int]]:
    ids = [int(one) for one in dict.fromkeys(experiment_ids)]
    yield from ([*ids[at : at + MOST_AT_ONCE]] for at in range(0, max(1, len(ids)), MOST_AT_ONCE))
