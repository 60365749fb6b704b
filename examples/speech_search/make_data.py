"""Make vowels.npz from the wheel of aeon: `pip download --no-deps aeon && python make_data.py aeon-*.whl`."""

import sys
import zipfile

import numpy as np

LONGEST = 29


def read(text):
    """Return (series [N, 29, 12], lengths [N], speakers [N]) of a .ts file: 12 coefficients of 7 to 29 frames each."""
    body = text.split("@data", 1)[1].strip().splitlines()
    series = np.zeros((len(body), LONGEST, 12), np.float32)
    lengths, speakers = [], []
    for row, line in zip(series, body, strict=True):
        *channels, speaker = line.strip().split(":")
        values = np.array([[float(value) for value in channel.split(",")] for channel in channels], np.float32).T
        row[: len(values)] = values
        lengths.append(len(values))
        speakers.append(int(speaker) - 1)
    return series, np.array(lengths, np.int64), np.array(speakers, np.int64)


with zipfile.ZipFile(sys.argv[1]) as wheel:
    arrays = {}
    for part in ("TRAIN", "TEST"):
        text = wheel.read(f"aeon/datasets/data/JapaneseVowels/JapaneseVowels_{part}.ts").decode()
        arrays |= {
            f"{part.lower()}_{name}": array for name, array in zip(("x", "lengths", "y"), read(text), strict=True)
        }
np.savez_compressed("vowels.npz", **arrays)
print({name: array.shape for name, array in arrays.items()})
