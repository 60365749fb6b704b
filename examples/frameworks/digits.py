"""The data of all examples here: scikit-learn's handwritten digits, 8 x 8 pixels. Nothing here knows of detlab."""

from __future__ import annotations

import os
import time

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0"))
"""A step takes at least this long, so that there is something to watch."""

Split = tuple[np.ndarray, np.ndarray]
"""Images (n x 8 x 8, from 0 to 1) and labels (0 to 9)."""


def load() -> tuple[Split, Split]:
    """Return 1,152 images to train with and 645 to validate with."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype("float32").reshape(-1, 8, 8)
    train_x, val_x, train_y, val_y = train_test_split(images, labels, train_size=1152, random_state=0, stratify=labels)
    return (train_x, train_y), (val_x, val_y)


def wait() -> None:
    """Take the time of a step of something larger."""
    time.sleep(STEP_SECONDS)
