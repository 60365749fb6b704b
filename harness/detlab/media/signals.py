"""Images, sound and video: of arrays and tensors, of PIL's images, of files and of bytes."""

from __future__ import annotations

import io
import struct
import wave
import zlib
from pathlib import Path
from typing import Any

from detlab.media import kinds
from detlab.media.base import Media, MediaError, plain_array, read_file
from detlab.media.headers import MediaHeader, read_header

_COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}
"""Channels -> the colour type of a PNG: grey, grey with alpha, RGB, RGB with alpha."""
_CHANNELS = frozenset(_COLOUR_TYPES)
_PLANE, _COLOURED = 2, 3
_MOST_SOUND_CHANNELS = 8


class Image(Media):
    """An image.

    Args:
        value: A path; bytes of a PNG, JPEG, GIF, WebP or SVG file; an image of PIL; or an array or tensor of the shape
            (height, width), (height, width, channels) or (channels, height, width). Numbers are 0 to 255, or of
            floating point 0 to 1; others of floating point are stretched to the range that they have.
        caption: A line for people, shown below it.
    """

    kind = kinds.IMAGE

    def __init__(self, value: Any, caption: str = "") -> None:
        super().__init__(caption)
        self._value = value

    def _encode(self) -> tuple[str, bytes]:
        value = self._value
        if isinstance(value, str | Path | bytes | bytearray):
            return _from_file(self.kind, value)
        if callable(getattr(value, "save", None)) and hasattr(value, "mode"):
            return kinds.PNG, _of_pil(value)
        return kinds.PNG, _of_pixels(plain_array(value))


class Audio(Media):
    """A sound.

    Args:
        value: A path; bytes of a WAV, MP3, Ogg or FLAC file; or an array or tensor of the shape (samples,),
            (samples, channels) or (channels, samples), of floating point from -1 to 1 or of 16-bit integers.
        sample_rate: Samples a second of an array.
        caption: A line for people, shown below it.
    """

    kind = kinds.AUDIO

    def __init__(self, value: Any, sample_rate: int | None = None, caption: str = "") -> None:
        super().__init__(caption)
        self._value = value
        self._rate = sample_rate

    def _encode(self) -> tuple[str, bytes]:
        if isinstance(self._value, str | Path | bytes | bytearray):
            return _from_file(self.kind, self._value)
        if not isinstance(self._rate, int) or not 0 < self._rate <= 768_000:
            raise MediaError("an array of samples needs its rate", hint="det.Audio(samples, sample_rate=16000)")
        return kinds.WAV, _wave(plain_array(self._value), self._rate)


class Video(Media):
    """A video.

    Args:
        value: A path; bytes of an MP4, WebM or GIF file; or an array or tensor of the shape (frames, height, width) or
            (frames, height, width, channels), which becomes a GIF and needs PIL.
        fps: Frames a second of an array.
        caption: A line for people, shown below it.
    """

    kind = kinds.VIDEO

    def __init__(self, value: Any, fps: float = 10.0, caption: str = "") -> None:
        super().__init__(caption)
        self._value = value
        self._fps = fps

    def _encode(self) -> tuple[str, bytes]:
        if isinstance(self._value, str | Path | bytes | bytearray):
            return _from_file(self.kind, self._value)
        return kinds.GIF, _gif(plain_array(self._value), self._fps)


def _from_file(kind: str, value: str | Path | bytes | bytearray) -> tuple[str, bytes]:
    most = kinds.MOST_BYTES[kind]
    body = bytes(value) if isinstance(value, bytes | bytearray) else read_file(value, most)
    found = read_header(io.BytesIO(body))
    known = ", ".join(one.partition("/")[2] for one in kinds.FORMATS[kind])
    if found is None or found.media_type not in kinds.FORMATS[kind]:
        is_what = "nothing that is known" if found is None else found.media_type
        raise MediaError(f"by its first bytes it is {is_what}, and {kind} is one of {known}", hint="convert it")
    _check_size(found)
    return found.media_type, body


def _check_size(header: MediaHeader) -> None:
    if why := header.too_large:
        raise MediaError(why, hint="log a smaller one, or a part of it")


def _of_pil(image: Any) -> bytes:
    _check_size(MediaHeader(kinds.PNG, *image.size))
    target = io.BytesIO()
    shown = image if image.mode in {"1", "L", "LA", "P", "RGB", "RGBA"} else image.convert("RGB")
    shown.save(target, format="PNG")
    return target.getvalue()


def _of_pixels(array: Any) -> bytes:
    """Return an array of pixels as a PNG."""
    shape = array.shape
    if len(shape) == _COLOURED and shape[2] not in _CHANNELS and shape[0] in _CHANNELS:
        array = array.transpose(1, 2, 0)
    elif len(shape) == _COLOURED and shape[0] in _CHANNELS and shape[2] in _CHANNELS and shape[1] > shape[2]:
        pass  # as narrow as it has channels: taken as it is
    if array.ndim == _PLANE:
        array = array[:, :, None]
    if array.ndim != _COLOURED or array.shape[2] not in _CHANNELS or 0 in array.shape:
        several = "; of a batch, log a list: [det.Image(one) for one in batch]" if len(shape) == _COLOURED + 1 else ""
        raise MediaError(
            f"an image has the shape (height, width), (height, width, channels) or (channels, height, width), not"
            f" {tuple(shape)}{several}"
        )
    height, width, channels = array.shape
    _check_size(MediaHeader(kinds.PNG, width, height))
    pixels = _bytes_of(array).reshape(height, width * channels)
    return write_png(width, height, channels, [row.tobytes() for row in pixels])


def _bytes_of(array: Any) -> Any:
    """Return numbers as bytes, 0 to 255."""
    import numpy as np

    if array.dtype == np.uint8:
        return array
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * 255
    if array.dtype.kind == "f":
        array = np.nan_to_num(array.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
        finite = array[np.isfinite(array)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
        if low >= 0.0 and high <= 1.0:
            low, high = 0.0, 1.0
        elif low >= 0.0 and high <= 255.0:
            low, high = 0.0, 255.0
        scaled = (np.clip(array, low, high) - low) / (high - low or 1.0) * 255.0
        return np.rint(scaled).astype(np.uint8)
    low, high = int(array.min()), int(array.max())
    if low < 0 or high > 255:
        raise MediaError(
            f"integers of an image are 0 to 255, these are {low} to {high}",
            hint="divide them, or convert them to floating point: then they are stretched to their range",
        )
    return array.astype(np.uint8)


def write_png(width: int, height: int, channels: int, rows: list[bytes]) -> bytes:
    """Return rows of pixels, a byte for each channel, as a PNG."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + row for row in rows), 4)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def _wave(samples: Any, rate: int) -> bytes:
    """Return samples as a WAV file of 16 bits."""
    import numpy as np

    if samples.ndim == 2 and samples.shape[0] <= _MOST_SOUND_CHANNELS < samples.shape[1]:
        samples = samples.T
    if samples.ndim == 1:
        samples = samples[:, None]
    if samples.ndim != 2 or not samples.size or samples.shape[1] > _MOST_SOUND_CHANNELS:
        raise MediaError(f"a sound has the shape (samples,) or (samples, channels), not {tuple(samples.shape)}")
    if samples.size * 2 > kinds.MOST_BYTES[kinds.AUDIO]:
        raise MediaError(f"{samples.size:,} samples are more than {kinds.MOST_BYTES[kinds.AUDIO]:,} bytes hold")
    if samples.dtype.kind == "f":
        samples = np.rint(np.clip(np.nan_to_num(samples), -1.0, 1.0) * 32767.0)
    elif samples.dtype != np.int16:
        raise MediaError(f"samples are of floating point, -1 to 1, or of int16, not of {samples.dtype}")
    target = io.BytesIO()
    with wave.open(target, "wb") as file:
        file.setnchannels(samples.shape[1])
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.astype("<i2").tobytes())
    return target.getvalue()


def _gif(frames: Any, fps: float) -> bytes:
    try:
        from PIL import Image as Pil
    except ImportError as error:
        raise MediaError(
            "frames become a GIF by PIL, which is not in the task's environment",
            hint="pip install pillow, or log the path of an MP4 or WebM file",
        ) from error
    if frames.ndim not in {3, 4} or not frames.size or frames.shape[3:] not in {(), (3,), (4,)}:
        raise MediaError(f"frames have the shape (frames, height, width[, channels]), not {tuple(frames.shape)}")
    _check_size(MediaHeader(kinds.GIF, frames.shape[2], frames.shape[1]))
    if not 0.1 <= fps <= 100:
        raise MediaError(f"a video has 0.1 to 100 frames a second, not {fps}")
    first, *rest = [Pil.fromarray(one) for one in _bytes_of(frames)]
    target = io.BytesIO()
    first.save(target, format="GIF", save_all=True, append_images=rest, duration=int(1000 / fps), loop=0)
    return target.getvalue()
