"""What it costs a training to log images, and a page to list 10,000 of them.

    python bench/media.py
    python bench/media.py --quick               a tenth of everything

A report is encoded and left in the spool of a task, in the training's thread. Pages are as the service asks for them:
200 objects of one trial, the objects of a step with its slider anywhere, the keys, the steps. Nothing is kept.
"""

from __future__ import annotations

import logging
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measure import Figure, conclude, median_of, options, percentile
from sqlalchemy import insert

import detlab as det
from detlab.core.metrics.media import MediaReporter, MediaSpool
from detlab.schemas.wire.media import MediaPage
from detlab_hub.services.ingest.media import view_of
from detlab_hub.store import Store
from detlab_hub.store.queries.tracking import media
from detlab_hub.store.tables import ExperimentRow, MediaRow, TrialRow

IMAGES, KEYS, LOOKS = 10_000, 10, 100
GOAL = 100.0


def fill(s: Any, images: int) -> int:
    """Make a trial that has logged images under several keys; return its id."""
    experiment = ExperimentRow(name="images", owner="ada", state="COMPLETED")
    s.add(experiment)
    s.flush()
    trial = TrialRow(experiment_id=experiment.id, idx=0, request_id="0", state="COMPLETED", hparams={})
    s.add(trial)
    s.flush()
    same = {"experiment_id": experiment.id, "trial_id": trial.id, "kind": "image", "media_type": "image/png"}
    rows = [
        {**same, "step": 10 * (n // KEYS), "key": f"samples/{n % KEYS}", "caption": f"digit {n}", "digest": f"{n:064x}"}
        for n in range(images)
    ]
    s.execute(insert(MediaRow), rows)
    return int(trial.id)


def looks(store: Store, images: int) -> list[Figure]:
    """Return how long the lists take."""
    trial = store.write_sync(lambda s: fill(s, images))
    drawn = random.Random(1)
    steps = images // KEYS

    def page(s: Any) -> int:
        after = (10 * drawn.randrange(steps), 0)
        return _rows(s, media.ids_of(s, trial, media.MediaWanted(after=after), 201)[:200])

    def step(s: Any) -> int:
        return _rows(s, media.ids_of(s, trial, media.MediaWanted(at=10 * drawn.randrange(steps)), 201)[:200])

    return [
        row(store, "a page of 200 of them", page),
        row(store, "those of a step", step),
        row(store, "the keys", lambda s: len(media.keys_of(s, trial))),
        row(store, "the steps", lambda s: len(media.steps_of(s, trial, None, -1, 5000))),
    ]


def _rows(s: Any, ids: list[int]) -> int:
    found = [view_of(s.get_one(MediaRow, one)) for one in ids]
    return len(MediaPage(items=found).model_dump_json())


def row(store: Store, label: str, look: Callable[[Any], int]) -> Figure:
    """Return the figure of one list."""
    found = []
    for _ in range(LOOKS):
        begun = time.perf_counter()
        store.read_sync(look)
        found.append((time.perf_counter() - begun) * 1000)
    return Figure(label, percentile(found, 95), "ms", at_most=GOAL, note=f"median {median_of(found):.1f}")


def reports(folder: Path, images: int) -> list[Figure]:
    """Return what reports cost a training."""
    found = []
    for size in (28, 256):
        reporter = MediaReporter(MediaSpool(folder / str(size)))
        pixels = np.random.default_rng(1).random((size, size, 3))
        took = []
        for step in range(images // 20):
            begun = time.perf_counter()
            reporter.report(step, {"samples": det.Image(pixels)})
            took.append((time.perf_counter() - begun) * 1000)
        note = f"95th percentile {percentile(took, 95):.1f}"
        found.append(Figure(f"report_media of {size} x {size} x 3 numbers", median_of(took), "ms", note=note))
    return found


def main() -> int:
    """Print the table; with --check status 1 if a goal is missed."""
    given = options(__doc__ or "")
    images = IMAGES // 10 if given.quick else IMAGES
    logging.getLogger("detlab.core").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="detlab-bench-") as name:
        store = Store.open(f"sqlite:///{name}/media.sqlite", holder="bench")
        try:
            rows = reports(Path(name), images) + looks(store, images)
        finally:
            store.close()
    return conclude(f"Media: {images:,} images of a trial (95th percentile)", rows, given)


if __name__ == "__main__":
    sys.exit(main())
