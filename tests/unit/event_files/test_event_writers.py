"""What torch's SummaryWriter writes is read, as it is."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from detlab.media import kinds
from testbed.event_files import Importing

pytest.importorskip("tensorboard", reason="the package tensorboard writes these files, and is not installed")
torch = pytest.importorskip("torch", reason="torch's SummaryWriter writes these files, and torch is not installed")


def test_what_a_summary_writer_writes_is_imported(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    work = Importing(tmp_path, since=time.time(), clock=time.time)
    with SummaryWriter(tmp_path / "runs" / "x") as writer:
        for step in range(3):
            writer.add_scalar("loss", 1 / 2**step, step)
            writer.add_scalar("val/acc", step, step, new_style=True)
            writer.add_scalar("double", 0.1, step, new_style=True, double_precision=True)
        writer.flush()
        work.look()
        assert len(work.taken.reports) == 3
        writer.add_scalars("both", {"a": 1.0, "b": 2.0}, 5)
        writer.add_image("picture", torch.zeros(3, 8, 8), 1)
        writer.add_images("grid", torch.zeros(4, 3, 8, 8), 1)
        writer.add_histogram("weights", torch.arange(1000.0), 1)
        writer.add_text("said", "hello **you**", 2)
        writer.add_audio("sound", torch.zeros(1, 1000), 3, sample_rate=8000)
        writer.add_hparams({"lr": 0.1}, {"score": 3.0}, run_name="tried")
        writer.add_pr_curve("pr", torch.tensor([0, 1]), torch.tensor([0.1, 0.9]), 1)
        writer.add_embedding(torch.zeros(3, 2))
    work.look()
    assert work.taken.reports[0][1] == {"loss": 1.0, "val/acc": 0.0, "double": 0.1}
    assert {("both_a/both", 5, 1.0), ("both_b/both", 5, 2.0), ("tried/score", 0, 3.0)} <= set(work.taken.points)
    kept = {key: (step, one) for key, step, _, one in work.taken.objects}
    assert {key: (step, one.kind, one.media_type) for key, (step, one) in kept.items()} == {
        "picture": (1, kinds.IMAGE, kinds.PNG),
        "grid": (1, kinds.IMAGE, kinds.PNG),
        "weights": (1, kinds.HISTOGRAM, kinds.JSON),
        "said": (2, kinds.TEXT, kinds.PLAIN),
        "sound": (3, kinds.AUDIO, kinds.WAV),
    }
    assert kept["said"][1].body == b"hello **you**"
    assert sum(json.loads(kept["weights"][1].body)["counts"]) == 1000
    assert [one for one in work.said if "pr_curves" in one]
