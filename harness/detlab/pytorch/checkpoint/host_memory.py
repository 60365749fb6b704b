"""Host memory that is reused between checkpoints, so that taking one costs only a copy."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

_ALIGNMENT = 64
_SPARE_PART = 32  # a block is larger by this part, so that a state that grows a little fits again
_SPARE_BYTES = 1024 * 1024
_LARGE = 64 * 1024  # bytes from which a tensor is worth a plain copy of memory, shared among threads
_PIECE = 8 * 1024 * 1024
_MOST_THREADS = 4  # more do not copy faster: memory is the limit

Piece = tuple[int, int, int]
"""Where to, where from, how many bytes."""


class HostMemory:
    """One block for all tensors of a state.

    Tensors keep their strides where these leave no holes, so that the copy is plain. The layout is kept while number,
    shapes, dtypes and strides are the same; the block is kept while they fit. Memory is page-locked once a tensor is on
    a GPU.
    """

    def __init__(self) -> None:
        self._block: Any = None
        self._layout: list[Any] | None = None
        self._views: list[torch.Tensor] = []
        self.allocations = 0

    def prepare(self, tensors: Sequence[torch.Tensor]) -> None:
        """Allocate and touch what these tensors need."""
        self._lay_out([_shape_of(tensor) for tensor in tensors], pinned=any(tensor.is_cuda for tensor in tensors))

    def copy(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Copy tensors, waiting for the GPUs that they are on.

        Args:
            tensors: By key; the same object under two keys is copied once.

        Returns:
            The copies by key, good until the next call.
        """
        sources = list({id(tensor): tensor for tensor in tensors.values()}.values())
        layout = [_shape_of(tensor) for tensor in sources]
        devices = {tensor.device for tensor in sources if tensor.is_cuda}
        self._lay_out(layout, pinned=bool(devices))
        plain, others = _split(self._views, sources)
        with torch.no_grad(), _beside(plain):
            if others:
                views, rest = zip(*others, strict=True)
                torch._foreach_copy_(list(views), list(rest), non_blocking=bool(devices))
        for device in devices:
            torch.cuda.current_stream(device).synchronize()
        copies = dict(zip(map(id, sources), self._views, strict=True))
        return {key: copies[id(tensor)] for key, tensor in tensors.items()}

    def _lay_out(self, layout: list[Any], *, pinned: bool) -> None:
        if layout == self._layout and not (pinned and not self._block.is_pinned()):
            return
        self._layout, self._views = None, []
        places, end = [], 0
        for dtype, shape, strides in layout:
            places.append((dtype, shape, _dense(dtype, shape, strides), end))
            end += _round_up(dtype.itemsize * shape.numel())
        self._reserve(end, pinned)
        typed: dict[Any, torch.Tensor] = {}
        for dtype, shape, strides, start in places:
            base = typed.get(dtype)
            if base is None:
                base = typed[dtype] = self._block.view(dtype)
            self._views.append(base.as_strided(shape, strides, start // dtype.itemsize))
        self._layout = layout

    def _reserve(self, size: int, pinned: bool) -> None:
        if self._block is not None and self._block.numel() >= size and (self._block.is_pinned() or not pinned):
            return
        self._block = None  # first: the old block and the new one together may not fit
        size = _round_up(size + size // _SPARE_PART + _SPARE_BYTES)
        self._block = torch.empty(size, dtype=torch.uint8, pin_memory=pinned).zero_()
        self.allocations += 1


def _split(
    views: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]
) -> tuple[list[Piece], list[tuple[torch.Tensor, torch.Tensor]]]:
    """Tell large tensors that are plain memory, in pieces, from all others."""
    pieces: list[Piece] = []
    others = []
    for view, source in zip(views, sources, strict=True):
        size = source.numel() * source.itemsize
        if size < _LARGE or source.device.type != "cpu" or view.stride() != source.stride():
            others.append((view, source))
            continue
        to, origin = view.data_ptr(), source.data_ptr()
        pieces.extend((to + at, origin + at, min(_PIECE, size - at)) for at in range(0, size, _PIECE))
    return pieces, others


@contextlib.contextmanager
def _beside(pieces: Sequence[Piece]) -> Iterator[None]:
    """Copy pieces of memory in threads while the body runs, and in this one after it.

    One core does not fill the memory's bus, and `memmove` leaves the cache alone, which torch's copy does not.
    """
    left = iter(pieces)

    def work() -> None:
        for to, origin, size in left:  # `next` of a list's iterator is atomic
            ctypes.memmove(to, origin, size)  # without the interpreter's lock

    count = min(_cores(), _MOST_THREADS, len(pieces))
    helpers = [threading.Thread(target=work, name="detlab-checkpoint-copy") for _ in range(count - 1)]
    for helper in helpers:
        helper.start()
    try:
        yield
        work()
    finally:
        for helper in helpers:
            helper.join()


def _cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _shape_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.shape, tensor.stride()


def _dense(dtype: Any, shape: Any, strides: Any) -> Any:
    """Return the strides if they leave no holes, else those of a tensor without holes."""
    return torch.empty_like(torch.empty_strided(shape, strides, dtype=dtype, device="meta")).stride()


def _round_up(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
