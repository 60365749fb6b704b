"""Buffers that some sources may not change: running statistics, codebooks, and whatever else a forward pass keeps.

The engine `microbatch` puts them back behind each source; the others see all sources at once, and refuse instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from detlab.governance import Plan, Refusal
from detlab.governance.matrix import rows_that_change
from detlab.pytorch.parallel.unwrapping import plain_name, replica_in

MOST_NAMED = 10
_INSTANCE_NORMS = nn.modules.instancenorm._InstanceNorm


class ClosedBuffers:
    """Buffers that some sources may not change, such as the running statistics of batch norm.

    Args:
        plan: What each source may train.
        models: Bare models.
        columns: Column of each parameter in S, by id.

    Attributes:
        names: The first name of each, by the module that holds it and its key there.
    """

    def __init__(self, plan: Plan, models: Sequence[Any], columns: Mapping[int, int]) -> None:
        self._held: list[tuple[Any, str, frozenset[int]]] = []
        self.names: dict[tuple[Any, str], str] = {}
        self._kept: list[tuple[Any, str, Any, Any]] = []
        every = frozenset(range(len(plan.sources) + (plan.default is not None)))
        for (module, key), names in _buffers(models).items():
            beside = [columns[id(one)] for one in module.parameters(recurse=False) if id(one) in columns]
            if (rows := rows_that_change(plan, names, beside)) != every:
                self._held.append((module, key, rows))
                self.names[module, key] = names[0]

    @property
    def modules(self) -> list[Any]:
        """Modules that hold one."""
        return list({id(module): module for module, _, _ in self._held}.values())

    def closed_to(self, module: Any, key: str, rows: Iterable[int]) -> list[int]:
        """Return those of some rows that may not change a buffer."""
        allowed = next((may for one, name, may in self._held if one is module and name == key), None)
        return [] if allowed is None else sorted(set(rows) - allowed)

    def keep(self, row: int) -> None:
        """Remember those that a row may not change."""
        closed = [(module, key) for module, key, rows in self._held if row not in rows]
        held = [(module, key, module._buffers.get(key)) for module, key in closed]
        self._kept = [(module, key, one, one.detach().clone()) for module, key, one in held if one is not None]

    @torch.no_grad()
    def restore(self) -> None:
        """Put them back as they were, also where a module holds another tensor by now."""
        kept, self._kept = self._kept, []
        for module, key, held, before in kept:
            held.copy_(before)
            module._buffers[key] = held


def _buffers(models: Sequence[Any]) -> dict[tuple[Any, str], list[str]]:
    """Return all names of each buffer, by the module that holds it and its key there."""
    found: dict[tuple[Any, str], list[str]] = {}
    for index, model in enumerate(models):
        start = f"model_{index}." if len(models) > 1 else ""
        for path, module in model.named_modules(remove_duplicate=False):
            for key, held in module._buffers.items():
                if held is not None:
                    found.setdefault((module, key), []).append(start + plain_name(f"{path}.{key}" if path else key))
    return found


class BufferWatch:
    """Finds buffers that a batch has changed and that one of its sources may not change, for engines with one pass.

    They are compared bit by bit in each batch; only those are kept that are closed to somebody.

    Args:
        plan: What each source may train.
        models: Models, wrapped or not; and `bare`, what is in them.
        columns: Column of each parameter in S, by id.
    """

    def __init__(self, plan: Plan, models: Sequence[Any], bare: Sequence[Any], columns: Mapping[int, int]) -> None:
        self._plan = plan
        self._closed = ClosedBuffers(plan, bare, columns)
        self._before: dict[tuple[Any, str], Any] | None = None
        self._open = False
        # DDP copies the first rank's buffers at each forward pass: what they are before that is not what counts.
        self._copied = any(replica_in(one) is not None for one in models)
        if self._closed.names:
            for model in bare:
                model.register_forward_pre_hook(self._runs, prepend=True)

    def __deepcopy__(self, memo: dict[int, Any]) -> BufferWatch:
        return self  # a copy of a model, as for an average of its weights, has no batches of its own

    def known(self) -> list[Refusal]:
        """Return COUPLING for layers of which it is known that they change a buffer in training."""
        rows = range(len(self._plan.sources) + (self._plan.default is not None))
        found = []
        for (module, key), name in self._closed.names.items():
            if not _keeps_statistics(module, key):
                continue
            of = self._named(self._closed.closed_to(module, key, rows))
            what = f"{type(module).__name__} keeps {name} of all samples of a batch, which is closed to {of}"
            found.append(Refusal("COUPLING", f"{what}: track_running_stats=False, or open it by a rule of its name"))
        return found[:MOST_NAMED]

    def begin(self) -> None:
        """Begin a batch."""
        self._open = True
        self._before = None if self._copied else self._copies()

    def end(self) -> None:
        """End a batch."""
        self._open = False
        self._before = None

    def changed(self, rows: Iterable[int], *, lent: bool) -> list[Refusal]:
        """Return COUPLING for what was changed since the batch began and is closed to a source that it has.

        Args:
            rows: Those of its samples.
            lent: Whether they are another rank's, whose sources are not known.
        """
        if self._before is None:
            return []
        present = set(range(len(self._plan.sources))) if lent else set(rows)
        found = []
        for (module, key), before in self._before.items():
            now, closed = module._buffers.get(key), self._closed.closed_to(module, key, present)
            if not closed or (now is not None and _same(now, before)):
                continue
            name, of = self._closed.names[module, key], self._named(closed)
            what = f"the buffer {name} was changed by a batch with samples of {of}, to which it is closed"
            found.append(Refusal("COUPLING", f"{what}; open it by a rule of its name if it keeps nothing of samples"))
        if found:
            self._before = self._copies()  # each change is told once
        return found[:MOST_NAMED]

    def _runs(self, model: Any, _: Any) -> None:
        if self._copied and self._open and not torch.compiler.is_compiling() and self._before is None:
            self._before = self._copies()

    def _copies(self) -> dict[tuple[Any, str], Any]:
        held = {at: at[0]._buffers.get(at[1]) for at in self._closed.names}
        return {at: one.detach().clone() for at, one in held.items() if one is not None}

    def _named(self, rows: Iterable[int]) -> str:
        names = [*self._plan.sources, ""]
        return ", ".join(repr(names[row]) if names[row] else "samples without a declared source" for row in rows)


def _keeps_statistics(module: Any, key: str) -> bool:
    """Return whether a layer is known to change this buffer in each forward pass of a training, whatever runs."""
    return isinstance(module, _INSTANCE_NORMS) and module.track_running_stats and key.startswith("running_")


def _same(now: Any, before: Any) -> bool:
    if now.shape != before.shape or now.dtype != before.dtype:
        return False
    return bool(((now == before) | (now.isnan() & before.isnan())).all())
