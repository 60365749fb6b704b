"""How much of a GPU a task may take: what its environment says, and that torch is told only of less than the whole."""

import pytest
import torch

from detlab.pytorch.context.trial_context import keep_to_share, share_of


@pytest.mark.parametrize(
    ("said", "shares"),
    [
        ("[0.25]", [0.25, 1.0]),
        ("[1.0, 0.5]", [1.0, 0.5]),
        ("[]", [1.0, 1.0]),
        ("[0, 7]", [1.0, 1.0]),
        ("none", [1.0, 1.0]),
        ("{}", [1.0, 1.0]),
        ("null", [1.0, 1.0]),
    ],
)
def test_share_of_each_gpu(said, shares):
    assert [share_of(device, {"DET_DEVICE_SHARES": said}) for device in (0, 1)] == shares


def test_nothing_is_said_outside_of_a_task_or_of_a_whole_gpu():
    assert share_of(0, {}) == 1.0
    keep_to_share(0, {})
    keep_to_share(0, {"DET_DEVICE_SHARES": "[1.0]"})


def test_torch_is_told_which_part_of_which_gpu(monkeypatch):
    told = []  # torch's own door to the driver; there need be no GPU here
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda *said: told.append(said))
    for device in (0, 1):
        keep_to_share(device, {"DET_DEVICE_SHARES": "[1.0, 0.25]"})
    assert told == [(0.25, 1)]
