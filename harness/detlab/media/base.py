"""The base of all types of media, and what each becomes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from detlab.errors import DetlabError
from detlab.media import kinds


class MediaError(DetlabError, ValueError):
    """An object cannot be logged as this kind of media."""

    default_code = "media.invalid"


@dataclass(frozen=True)
class EncodedMedia:
    """An object as it is stored.

    Attributes:
        kind: One of `detlab.media.kinds.FORMATS`.
        media_type: One of that kind's.
        body: The bytes.
        caption: A line for people.
    """

    kind: str
    media_type: str
    body: bytes
    caption: str = ""

    @property
    def suffix(self) -> str:
        """The ending of a file that holds it."""
        return suffix_of(self.kind, self.media_type)


_SUFFIXES = {
    kinds.PNG: ".png",
    kinds.JPEG: ".jpg",
    kinds.GIF: ".gif",
    kinds.WEBP: ".webp",
    kinds.SVG: ".svg",
    kinds.WAV: ".wav",
    kinds.MP3: ".mp3",
    kinds.OGG: ".ogg",
    kinds.FLAC: ".flac",
    kinds.MP4: ".mp4",
    kinds.WEBM: ".webm",
    kinds.PLAIN: ".txt",
    kinds.MARKUP: ".html",
}


def suffix_of(kind: str, media_type: str) -> str:
    """Return the ending of a file of a kind and a media type."""
    return f".{kind}.json" if media_type == kinds.JSON else _SUFFIXES.get(media_type, ".bin")


class Media:
    """An object that a run logs.

    Args:
        caption: A line for people, shown below it.
    """

    kind = ""

    def __init__(self, caption: str = "") -> None:
        self.caption = str(caption)

    def encode(self) -> EncodedMedia:
        """Return it as bytes.

        Raises:
            MediaError: It cannot be logged; says why, and what would do.
        """
        media_type, body = self._encode()
        most = kinds.MOST_SVG_BYTES if media_type == kinds.SVG else kinds.MOST_BYTES[self.kind]
        if len(body) > most:
            raise MediaError(f"it has {len(body):,} bytes; {self.kind} may have {most:,}", hint=_SMALLER)
        return EncodedMedia(self.kind, media_type, body, self.caption[: kinds.MOST_CAPTION])

    def _encode(self) -> tuple[str, bytes]:
        raise NotImplementedError


_SMALLER = "log a smaller one, or save it with a checkpoint"


def as_json(value: Any) -> bytes:
    """Return a value as strict JSON."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")


def read_file(path: str | Path, most: int) -> bytes:
    """Return the bytes of a file, which is looked at before it is read.

    Raises:
        MediaError: It cannot be read, or is too large.
    """
    place = Path(path)
    try:
        if not place.is_file():
            raise MediaError(f"there is no file {str(place)[:200]!r}")
        if (size := place.stat().st_size) > most:
            raise MediaError(f"{str(place)[:200]!r} has {size:,} bytes; at most {most:,} can be logged", hint=_SMALLER)
        return place.read_bytes()
    except (OSError, ValueError) as error:
        if isinstance(error, MediaError):
            raise
        raise MediaError(f"{str(place)[:200]!r} cannot be read: {error}") from error


def plain_array(value: Any) -> Any:
    """Return a NumPy array of an array or tensor of any library, or of nested lists.

    Raises:
        MediaError: It is none, or NumPy is not installed.
    """
    try:
        import numpy as np
    except ImportError as error:
        raise MediaError("arrays need NumPy in the task's environment", hint="pip install numpy") from error
    try:
        for step in ("detach", "cpu"):  # tensors of torch, wherever they are
            if callable(getattr(value, step, None)):
                value = getattr(value, step)()
        if str(getattr(value, "dtype", "")) == "torch.bfloat16":
            value = value.float()
        found = np.asarray(value)
    except Exception as error:  # whatever a library raises for what it cannot convert
        raise MediaError(f"a {type(value).__name__} is no array: {str(error)[:200]}") from error
    if found.dtype.kind not in "biuf":
        raise MediaError(f"an array of {found.dtype} holds no numbers: {type(value).__name__}")
    return found


def numbers_of(values: Any, what: str) -> list[float]:
    """Return the numbers of a list, an array or a tensor, flat.

    Raises:
        MediaError: They are no numbers.
    """
    if isinstance(values, list | tuple) and all(type(one) in (int, float, bool) for one in values):
        return [float(one) for one in values]
    try:
        return [float(one) for one in plain_array(values).ravel().tolist()]
    except MediaError as error:
        raise MediaError(f"{what}: {error.message}", hint=error.hint) from error
