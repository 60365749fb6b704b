"""Checkpoints below the working directory are no source code of the next checkpoint."""

from __future__ import annotations

from pathlib import Path

from detlab.pytorch.checkpoint import source_code
from detlab.pytorch.checkpoint.files import write_state


def test_the_code_of_earlier_checkpoints_is_not_copied_into_the_next(tmp_path: Path) -> None:
    """Regression: with checkpoints below the working directory the copied files doubled with each of them."""
    (tmp_path / "train.py").write_text("pass\n")
    for number in range(4):
        folder = tmp_path / "checkpoints" / f"uuid-{number}"
        folder.mkdir(parents=True)
        write_state(folder, {"models_state_dict": []}, load_data={"trial_type": "PyTorchTrial"}, code=tmp_path)
        assert [path.name for path in (folder / "code").iterdir()] == ["train.py"]


def test_a_checkpoint_as_working_directory_is_source_code_itself(tmp_path: Path) -> None:
    (tmp_path / "load_data.json").write_text("{}")
    (tmp_path / "train.py").write_text("pass\n")
    assert set(source_code.collect(tmp_path)) == {"load_data.json", "train.py"}
