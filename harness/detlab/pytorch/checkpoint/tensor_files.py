"""Files in the safetensors format: written straight from the memory that the tensors are in, read with the library.

The library's own writer refuses two names for one tensor (tied weights), wants all tensors contiguous at once, and
holds the interpreter while it writes. The format: https://huggingface.co/docs/safetensors, "Format".
"""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from detlab.errors import CheckpointError
from detlab.pytorch.checkpoint.codec import STORABLE

_ALIGNMENT = 8


def write(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write tensors, of any device and strides, one after the other; two names for one tensor are written twice.

    Raises:
        OSError: As the operating system says.
    """
    # Wide elements first, as the library does: then each tensor is aligned to its element.
    order = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in order:
        start, end = end, end + tensors[name].nbytes
        header[name] = {
            "dtype": STORABLE[tensors[name].dtype],
            "shape": list(tensors[name].shape),
            "data_offsets": [start, end],
        }
    encoded = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % _ALIGNMENT)
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(encoded)) + encoded)
        for name in order:
            if tensors[name].numel():
                stream.write(_memory(tensors[name]))


def _memory(tensor: torch.Tensor) -> memoryview:
    """Return the elements' bytes in order; the tensor's own memory if it is contiguous on the CPU."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy())


class TensorReader:
    """The tensors of one file, read when asked for.

    Args:
        path: The file.

    Raises:
        CheckpointError: It is missing, cut off or damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._errors():
            self._file = safe_open(str(path), framework="pt", device="cpu")
            self.names = frozenset(self._file.keys())

    def tensor(self, name: str) -> torch.Tensor:
        """Return a tensor in memory of its own: the library's would be a window on the file."""
        with self._errors():
            return self._file.get_tensor(name).clone()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise CheckpointError(f"{self._path.name} is missing in {self._path.parent}") from None
        except (SafetensorError, OSError, ValueError, KeyError) as error:
            raise CheckpointError(f"{self._path} cannot be read: it is cut off or damaged ({error})") from error
