"""What an event says: numbers, images, sound, texts and histograms by tag. Everything else is passed over.

The numbers of fields are those of TensorFlow's `event.proto`, `summary.proto` and `tensor.proto`. Values come in two
forms: as fields of their own (torch's writer), and as tensors whose plugin says what they are (TensorFlow 2, texts).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from types import MappingProxyType

from detlab.core.event_files.messages import (
    BadEventMessage,
    Field,
    fields,
    integers,
    number,
    numbers,
    raw,
    signed,
    text,
)
from detlab.media import Audio, Histogram, Image, Media, Text, kinds
from detlab.media.scores import MOST_BINS

MOST_VALUES = 10_000
"""Of one event."""
MOST_TAG = 1_000
"""Characters of a tag."""
MOST_TAGS = 10_000
"""Whose plugin is remembered, of one file."""
MOST_NUMBERS = 100_000
"""Of one tensor or histogram."""
_TEXT_SUFFIX = "/text_summary"
"""What torch's writer puts behind the tags of texts."""
_CODES: Mapping[int, str] = MappingProxyType({1: "f", 2: "d", 3: "i", 4: "B", 5: "h", 6: "b", 9: "q", 19: "e"})
"""Types of tensors -> of their bytes."""
_ANY_CODE = "f"

Value = float | list[Media]


@dataclass
class LoggedEvent:
    """One event.

    Attributes:
        time: Seconds since the epoch; 0: it does not say.
        step: Where on the axis.
        values: By tag.
        left_out: Kinds of values that are not imported.
    """

    time: float = 0.0
    step: int = 0
    values: dict[str, Value] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)


def read_event(record: bytes, plugins: MutableMapping[str, str]) -> LoggedEvent:
    """Return what a record says.

    Args:
        record: The bytes.
        plugins: Tag -> what its values are, which a file need not say more than once; added to.

    Raises:
        BadEventMessage: It is no event.
    """
    event = LoggedEvent()
    summaries: list[bytes] = []
    for key, value in fields(record):
        match key:
            case 1:
                event.time = _seconds(number(value))
            case 2:
                event.step = signed(value)
            case 5:
                summaries.append(raw(value))
    seen = 0
    for summary in summaries:
        for key, value in fields(summary):
            if key != 1:
                continue
            seen += 1
            if seen > MOST_VALUES:
                raise BadEventMessage(f"an event has more than {MOST_VALUES} values")
            _take(event, raw(value), plugins)
    return event


def _seconds(value: float) -> float:
    return value if math.isfinite(value) and value > 0 else 0.0


def _take(event: LoggedEvent, message: bytes, plugins: MutableMapping[str, str]) -> None:
    """Add one value of a summary to an event."""
    tag, plugin = "", ""
    found: dict[int, Field] = {}
    for key, value in fields(message):
        match key:
            case 1:
                tag = text(value)[:MOST_TAG]
            case 9:
                plugin = _plugin(raw(value))
            case 2 | 4 | 5 | 6 | 8:
                found[key] = value
    if plugin and len(plugins) < MOST_TAGS:
        plugins.setdefault(tag, plugin)
    if not tag or not found:
        return
    known = plugins.get(tag, plugin)
    said = _value(*next(iter(found.items())), known)
    if said is None:
        event.left_out.add(known or "tensor")
    else:
        event.values[tag.removesuffix(_TEXT_SUFFIX) if known == "text" else tag] = said


def _plugin(metadata: bytes) -> str:
    """Return the name of the plugin that a value's metadata names."""
    for key, value in fields(metadata):
        if key == 1:
            return next((text(name)[:100] for inner, name in fields(raw(value)) if inner == 1), "")
    return ""


def _value(key: int, value: Field, plugin: str) -> Value | None:
    match key:
        case 2:
            return number(value)
        case 4:
            return [Image(_last(raw(value), 4))]
        case 5:
            return [_histogram(raw(value))]
        case 6:
            return [Audio(_last(raw(value), 4))]
    return _of_tensor(Tensor.read(raw(value)), plugin)


def _last(message: bytes, wanted: int) -> bytes:
    """Return the bytes of one field of a message; empty: it has none."""
    found = b""
    for key, value in fields(message):
        if key == wanted:
            found = raw(value)
    return found


# --- tensors ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tensor:
    """The values of a tensor as they stand in the message: what a shape promises beyond them is not made.

    Attributes:
        numbers: Of a tensor of numbers.
        strings: Of one of strings.
    """

    numbers: list[float]
    strings: list[bytes]

    @classmethod
    def read(cls, message: bytes) -> Tensor:
        """Read one.

        Raises:
            BadEventMessage: It is none, or has too many numbers.
        """
        kind, content = 0, b""
        found: list[float] = []
        strings: list[bytes] = []
        for key, value in fields(message):
            match key:
                case 1:
                    kind = signed(value)
                case 4:
                    content = raw(value)
                case 5 | 6:
                    found += numbers(value, "f" if key == 5 else "d", MOST_NUMBERS)
                case 7 | 10 | 11:
                    found += integers(value, MOST_NUMBERS)
                case 8:
                    strings.append(raw(value))
            if len(found) > MOST_NUMBERS or len(strings) > MOST_NUMBERS:
                raise BadEventMessage(f"a tensor has more than {MOST_NUMBERS:,} values")
        if content and not found and kind in _CODES:
            found = numbers(content, _CODES[kind], MOST_NUMBERS)
        return cls(found, strings)


def _of_tensor(tensor: Tensor, plugin: str) -> Value | None:
    match plugin:
        case "scalars" | "":
            return tensor.numbers[0] if len(tensor.numbers) == 1 and not tensor.strings else None
        case "text":
            said = "\n".join(one.decode("utf-8", errors="replace") for one in tensor.strings)
            return [Text(said.replace("\0", "\ufffd"))] if tensor.strings else None
        case "images":  # the width and the height come first
            return [Image(one) for one in tensor.strings[2 : 2 + kinds.MOST_AT_ONCE]]
        case "audio":  # each with a label behind it
            return [Audio(one) for one in tensor.strings[0 : 2 * kinds.MOST_AT_ONCE : 2]]
        case "histograms":
            return [_of_buckets(tensor.numbers)] if tensor.numbers else None
    return None


# --- histograms -------------------------------------------------------------------------------------------


def _histogram(message: bytes) -> Histogram:
    """Return a histogram whose buckets have their upper ends."""
    low = high = 0.0
    limits: list[float] = []
    counts: list[float] = []
    for key, value in fields(message):
        match key:
            case 1:
                low = number(value)
            case 2:
                high = number(value)
            case 6:
                limits += numbers(value, "d", MOST_NUMBERS)
            case 7:
                counts += numbers(value, "d", MOST_NUMBERS)
        if len(limits) > MOST_NUMBERS or len(counts) > MOST_NUMBERS:
            raise BadEventMessage(f"a histogram has more than {MOST_NUMBERS:,} buckets")
    if len(limits) != len(counts) or not counts:
        raise BadEventMessage(f"a histogram has {len(limits)} ends of {len(counts)} buckets")
    # The outermost ends may be as far out as numbers go; what is known to be there lies between these two.
    return _binned([low, *(min(max(limit, low), high) for limit in limits)], counts)


def _of_buckets(values: list[float]) -> Histogram:
    """Return a histogram whose buckets have both ends and a count each."""
    if len(values) % 3:
        raise BadEventMessage(f"{len(values)} numbers are no buckets of three")
    return _binned([*values[0::3], values[-2]], values[2::3])


def _binned(edges: list[float], counts: list[float]) -> Histogram:
    """Return a histogram of rising edges, with no more bins than can be shown."""
    if not all(math.isfinite(one) for one in (*edges, *counts)):
        raise BadEventMessage("a histogram has ends or counts that are not finite")
    kept_edges, kept, waiting = [edges[0]], [], 0.0
    for edge, count in zip(edges[1:], counts, strict=True):
        waiting += count
        if edge > kept_edges[-1]:
            kept_edges.append(edge)
            kept.append(waiting)
            waiting = 0.0
    if not kept:  # all values are the same
        middle = kept_edges[0]
        reach = max(0.5, abs(middle) * 1e-6)
        kept_edges, kept, waiting = [middle - reach, middle + reach], [waiting], 0.0
    kept[-1] += waiting
    each = math.ceil(len(kept) / MOST_BINS)
    starts = range(0, len(kept), each)
    joined = [math.fsum(kept[start : start + each]) for start in starts]
    return Histogram(bins=[*(kept_edges[start] for start in starts), kept_edges[-1]], counts=joined)
