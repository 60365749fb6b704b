"""What a pickle would import, read off its opcodes; nothing is unpickled.

A pickle is a program for a small machine. Most of its instructions build lists and strings; few name something to
import, and what is imported may be called. This runs the machine with blanks in place of objects, so that names that
are put together by way of its memory are found too.
"""

from __future__ import annotations

import dataclasses
import pickletools
from typing import Any, BinaryIO

PICKLE_BYTES = 64 * 1024 * 1024
"""Of one file are looked at, at most."""
OPCODES = 2_000_000
_STREAMS = 20
_BLANK = object()
_MARK = object()
_LEGACY_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_TEXT_STARTS = frozenset(b"(]})IJKLMNFGSUTVXcl")
_UNREADABLE = "a name that is put together while it is opened"

_HARMLESS = frozenset(
    {
        "__builtin__.set",
        "_codecs.encode",
        "builtins.bytearray",
        "builtins.complex",
        "builtins.frozenset",
        "builtins.int",
        "builtins.list",
        "builtins.dict",
        "builtins.set",
        "builtins.slice",
        "builtins.tuple",
        "collections.Counter",
        "collections.OrderedDict",
        "collections.deque",
        "copyreg._reconstructor",
        "datetime.date",
        "datetime.datetime",
        "datetime.timedelta",
        "datetime.timezone",
        "numpy.dtype",
        "numpy.ndarray",
        "torch.Size",
        "torch.device",
        "torch.serialization._get_layout",
    }
)
_HARMLESS_STARTS = (
    "numpy.core.multiarray._reconstruct",
    "numpy._core.multiarray._reconstruct",
    "numpy.core.multiarray.scalar",
    "numpy._core.multiarray.scalar",
    "numpy._core.numeric._frombuffer",
    "numpy.core.numeric._frombuffer",
    "torch._utils._rebuild_",
    "joblib.numpy_pickle.NumpyArrayWrapper",
)
_TORCH_DTYPES = frozenset(
    f"{kind}{bits}"
    for kind, widths in (("int", (8, 16, 32, 64)), ("float", (16, 32, 64)), ("complex", (64, 128)))
    for bits in widths
) | {"bfloat16", "bool", "uint8"}
_STRINGS = frozenset(
    {"UNICODE", "BINUNICODE", "BINUNICODE8", "SHORT_BINUNICODE", "STRING", "BINSTRING", "SHORT_BINSTRING"}
)
_TORCH_CLASSES = {"torch.nn.parameter": {"Parameter", "Buffer"}, "torch.storage": {"UntypedStorage", "TypedStorage"}}
_ALARMING = {"nt": "os", "posix": "os", "__builtin__": "builtins"}


@dataclasses.dataclass(frozen=True, slots=True)
class Pickled:
    """What pickles would import.

    Attributes:
        names: `module.name`, each once, in order.
        complete: Whether the whole of the pickle was looked at; what follows raw arrays or damage is not.
    """

    names: tuple[str, ...] = ()
    complete: bool = True

    @property
    def alarming(self) -> tuple[str, ...]:
        """Those that are not of tensors, arrays and plain values, which is what weights are made of."""
        return tuple(name for name in self.names if not _is_harmless(name))

    def and_also(self, other: Pickled) -> Pickled:
        """Return what both would import."""
        return Pickled(tuple(dict.fromkeys(self.names + other.names)), self.complete and other.complete)

    def sentence(self, most: int = 5) -> str:
        """Say what opening it would do: `opening it would import os.system`."""
        alarming = [_printable(name) for name in self.alarming]
        tail = "" if self.complete else "; not all of it could be looked at"
        if not alarming:
            return f"opening it can run code, though it names only tensors, arrays and plain values{tail}"
        named = ", ".join(alarming[:most]) + (f" and {len(alarming) - most} more" if len(alarming) > most else "")
        return f"opening it would import, and may call, {named}{tail}"


def scan(stream: BinaryIO) -> Pickled:
    """Return what the pickles in a stream, one after the other, would import.

    Args:
        stream: At the start of a pickle.
    """
    limited = _Limited(stream, PICKLE_BYTES)
    found = Pickled()
    for _ in range(_STREAMS):
        names, whole = _Machine().run(limited)
        found = found.and_also(Pickled(tuple(names), complete=whole))
        if not whole or not _goes_on(limited):
            break
    return found


def _goes_on(limited: _Limited) -> bool:
    """Tell whether another pickle follows; behind the last one of torch's old files are the raw tensors."""
    try:
        return looks_pickled(limited.peek(2), whole=False)
    except (OSError, EOFError, ValueError):  # what follows in a compressed file is damaged
        return False


def legacy_torch(head: bytes) -> bool:
    """Tell whether a file begins as `torch.save` wrote it before version 1.6."""
    return head.startswith(_LEGACY_TORCH)


def looks_pickled(head: bytes, *, whole: bool) -> bool:
    """Tell whether bytes begin a pickle.

    Args:
        head: First bytes of the file.
        whole: Whether they are all of it. The old protocols 0 and 1 begin with no mark: they are tried to the end.
    """
    if len(head) > 1 and head[0] == 0x80 and head[1] <= 5:
        return True
    if not whole or not head or head[0] not in _TEXT_STARTS:
        return False
    try:
        return sum(1 for _ in pickletools.genops(head)) > 1
    except (ValueError, IndexError, KeyError, OverflowError, UnicodeDecodeError):
        return False


class _Limited:
    """Reads a stream up to a limit, with a look ahead, as `pickletools` asks for it."""

    def __init__(self, stream: BinaryIO, limit: int) -> None:
        self._stream = stream
        self._left = limit
        self._ahead = b""

    def peek(self, size: int) -> bytes:
        self._ahead += self._stream.read(size - len(self._ahead))
        return self._ahead

    def read(self, size: int = -1) -> bytes:
        size = self._left if size < 0 else min(size, self._left)
        data = self._ahead[:size]
        self._ahead = self._ahead[len(data) :]
        if len(data) < size:
            data += self._stream.read(size - len(data))
        self._left -= len(data)
        return data

    def readline(self) -> bytes:
        data, self._ahead = self._ahead, b""
        cut = data.find(b"\n")
        if cut >= 0:
            data, self._ahead = data[: cut + 1], data[cut + 1 :]
        else:
            data += self._stream.readline(max(0, self._left - len(data)))
        self._left -= len(data)
        return data


class _Machine:
    """The stack and memo of a pickle's machine, in which only strings have a value."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self.names: list[str] = []

    def run(self, stream: Any) -> tuple[list[str], bool]:
        """Return the names that are imported, and whether the program ended as it should."""
        try:
            for count, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
                if count > OPCODES:
                    return self.names, False
                self._step(opcode, argument)
        except Exception:  # hostile bytes: pickletools raises whatever its readers do
            return self.names, False
        return self.names, True

    def _step(self, opcode: pickletools.OpcodeInfo, argument: Any) -> None:
        match opcode.name:
            case "GLOBAL" | "INST":
                self._import(*str(argument).split(" ", 1))
            case "STACK_GLOBAL":
                self._import(*self._stack[-2:])
            case "EXT1" | "EXT2" | "EXT4":
                self.names.append(f"number {argument} of copyreg's extensions")
            case "PUT" | "BINPUT" | "LONG_BINPUT":
                self._memo[int(argument)] = self._top()
                return
            case "MEMOIZE":
                self._memo[len(self._memo)] = self._top()
                return
            case "GET" | "BINGET" | "LONG_BINGET":
                self._stack.append(self._memo.get(int(argument), _BLANK))
                return
            case "DUP":
                self._stack.append(self._top())
                return
        self._pop(opcode)
        self._push(opcode, argument)

    def _top(self) -> Any:
        return self._stack[-1] if self._stack else _BLANK

    def _import(self, module: Any = _BLANK, name: Any = _BLANK) -> None:
        known = isinstance(module, str) and isinstance(name, str)
        full = f"{_ALARMING.get(module, module)}.{name}" if known else _UNREADABLE
        if full not in self.names:
            self.names.append(full)

    def _pop(self, opcode: pickletools.OpcodeInfo) -> None:
        before = list(opcode.stack_before)
        if pickletools.markobject in before:  # all above the last mark goes, and what stands before the mark
            while self._stack and self._stack.pop() is not _MARK:
                pass
            before = before[: before.index(pickletools.markobject)]
        del self._stack[max(0, len(self._stack) - len(before)) :]

    def _push(self, opcode: pickletools.OpcodeInfo, argument: Any) -> None:
        for kind in opcode.stack_after:
            if kind is pickletools.markobject:
                self._stack.append(_MARK)
            else:
                self._stack.append(argument if opcode.name in _STRINGS else _BLANK)


def _is_harmless(name: str) -> bool:
    if name in _HARMLESS:
        return True
    if any(name.startswith(start) and "." not in name[len(start) :] for start in _HARMLESS_STARTS):
        return True
    module, _, last = name.rpartition(".")
    if module == "torch":
        return last.endswith(("Storage", "Tensor")) or last in _TORCH_DTYPES
    return module in _TORCH_CLASSES and last in _TORCH_CLASSES[module]


def _printable(name: str, most: int = 100) -> str:
    shown = name if name.isprintable() else ascii(name)
    return shown if len(shown) <= most else shown[:most] + "…"
