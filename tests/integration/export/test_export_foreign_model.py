"""A model that others trained and shipped, silero-vad: known by its bytes, loaded without pickles, and run on sound."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional

from detlab.export.contents import contents_of
from detlab.storage.formats import Format, folder_format, format_of, why_refused

ROOT = Path(__file__).parents[3]
RATE = 16_000
SAMPLES = 512
"""Of a window, 32 ms."""
CONTEXT = 64
"""Samples of the window before that go with each."""


class VoiceActivity(torch.nn.Module):
    """The network that silero-vad's tensors belong to, for sound of 16 kHz; their shapes say what it is."""

    def __init__(self) -> None:
        super().__init__()
        self.stft_conv = torch.nn.Conv1d(1, 258, 256, stride=128, bias=False)
        self.conv1 = torch.nn.Conv1d(129, 128, 3, padding=1)
        self.conv2 = torch.nn.Conv1d(128, 64, 3, stride=2, padding=1)
        self.conv3 = torch.nn.Conv1d(64, 64, 3, stride=2, padding=1)
        self.conv4 = torch.nn.Conv1d(64, 128, 3, padding=1)
        self.lstm_cell = torch.nn.LSTMCell(128, 128)
        self.final_conv = torch.nn.Conv1d(128, 1, 1)

    def forward(
        self, window: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor] | None = None
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        waves = self.stft_conv(functional.pad(window.unsqueeze(1), (0, 64), "reflect"))
        found = torch.sqrt(waves[:, :129] ** 2 + waves[:, 129:] ** 2)
        for layer in (self.conv1, self.conv2, self.conv3, self.conv4):
            found = layer(found).relu()
        state = self.lstm_cell(found.squeeze(-1), state)
        return self.final_conv(state[0].unsqueeze(-1).relu()).sigmoid().flatten(), state


def windows(sound: torch.Tensor) -> torch.Tensor:
    """The windows of a sound, each with its context before it."""
    padded = functional.pad(sound, (CONTEXT, 0))
    return padded.unfold(0, CONTEXT + SAMPLES, SAMPLES)


def heard(network: VoiceActivity, sound: torch.Tensor) -> list[float]:
    """How sure the network is of a voice, by window."""
    found, state = [], None
    with torch.no_grad():
        for window in windows(sound):
            sure, state = network(window.unsqueeze(0), state)
            found.append(sure.item())
    return found


def voice(seconds: float) -> torch.Tensor:
    """Vowels as a throat makes them: a buzz of 110 to 150 Hz, its tones of different strength, in syllables."""
    time = np.arange(int(seconds * RATE)) / RATE
    pitch = 130 + 20 * np.sin(2 * np.pi * 0.7 * time)
    turns = 2 * np.pi * np.cumsum(pitch) / RATE
    vowels = np.array([[730, 1090, 2440], [270, 2290, 3010], [570, 840, 2410], [530, 1840, 2480]])
    middle = vowels[(time * 4).astype(int) % len(vowels)]
    sound = np.zeros_like(time)
    for tone in range(1, 40):
        away = (tone * pitch[:, None] - middle) / np.array([90, 110, 160])
        strength = (np.array([1.0, 0.6, 0.3]) / (1 + away**2)).sum(axis=1) + 0.01
        sound += strength / tone**0.5 * np.sin(tone * turns)
    syllables = 0.55 - 0.45 * np.cos(2 * np.pi * 4 * time)
    return torch.from_numpy(0.3 * sound / np.abs(sound).max() * syllables).float()


@pytest.fixture(scope="module")
def shipped() -> Path:
    """The folder of tensors that the package silero-vad ships."""
    found = list(ROOT.glob(".venv-mlflow/lib/python3.*/site-packages/silero_vad/data"))
    if not found:
        assert "CI" not in os.environ, "make setup-test makes .venv-mlflow"
        pytest.skip("no .venv-mlflow: make setup-test")
    return found[0]


def test_its_files_are_what_their_bytes_say(shipped: Path) -> None:
    kinds = {path.name: format_of(path) for path in shipped.iterdir() if path.is_file()}
    assert kinds["silero_vad_16k.safetensors"] is Format.SAFETENSORS
    assert kinds["silero_vad.jit"] is Format.TORCHSCRIPT
    assert {kind for name, kind in kinds.items() if name.endswith(".onnx")} == {Format.ONNX}
    assert all(why_refused(shipped / name) is None for name in kinds)


@pytest.fixture
def network(shipped: Path, tmp_path: Path) -> VoiceActivity:
    """The network with the tensors as they come from a folder that somebody registers."""
    folder = tmp_path / "foreign"
    folder.mkdir()
    (folder / "model.bin").write_bytes((shipped / "silero_vad_16k.safetensors").read_bytes())
    assert folder_format(folder) == "safetensors"
    contents = contents_of(folder)
    (name,) = (name for name, kind in contents.formats.items() if kind.safe)
    network = VoiceActivity()
    network.load_state_dict(load_file(folder / name))
    return network.eval()


def test_it_hears_a_voice_and_neither_silence_nor_noise(network: VoiceActivity) -> None:
    torch.manual_seed(1)
    silence = torch.zeros(2 * RATE)
    spoken = heard(network, torch.cat([silence[:RATE], voice(3.0)]))
    quiet = heard(network, silence)
    noisy = heard(network, 0.05 * torch.randn(2 * RATE))
    before, during = spoken[: RATE // SAMPLES], spoken[RATE // SAMPLES + 3 :]
    assert max(quiet) < 0.2
    assert max(before) < 0.2
    assert np.mean(noisy) < 0.3
    assert np.mean([sure > 0.5 for sure in during]) > 0.6


def test_the_network_is_its_authors(network: VoiceActivity, shipped: Path) -> None:
    """They ship other numbers in their own program: with these, this network computes what that program does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch advises against new TorchScript; this is old
        theirs = torch.jit.load(str(shipped / "silero_vad.jit"), map_location="cpu")
    inside = {name.removeprefix("_model."): value for name, value in theirs.state_dict().items()}
    names = {"stft_conv.weight": "stft.forward_basis_buffer"}
    for part in ("weight", "bias"):
        names |= {f"conv{layer + 1}.{part}": f"encoder.{layer}.reparam_conv.{part}" for layer in range(4)}
        names |= {f"lstm_cell.{part}_{of}": f"decoder.rnn.{part}_{of}" for of in ("ih", "hh")}
        names[f"final_conv.{part}"] = f"decoder.decoder.2.{part}"
    network.load_state_dict({mine: inside[name] for mine, name in names.items()})
    sound = voice(1.0)
    pieces = sound[: len(sound) // SAMPLES * SAMPLES].reshape(-1, SAMPLES)
    with torch.no_grad():
        expected = [theirs(piece.unsqueeze(0), RATE).item() for piece in pieces]
    np.testing.assert_allclose(heard(network, sound)[: len(expected)], expected, atol=1e-4)
