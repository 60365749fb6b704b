"""What `bench/governance.py` counts with: an accountant, placebos of the right size, a text in blocks."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import torch

BENCH = Path(__file__).parents[3] / "bench"


@pytest.fixture(autouse=True)
def bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))


def test_the_accountant_agrees_with_published_numbers_and_finds_the_noise_for_an_epsilon():
    from governed.memorisation import noise_for, spent

    # The tutorial of TensorFlow Privacy: 60 epochs of MNIST, batches of 256, noise 1.1: 2.92 by the older conversion.
    found = spent(1.1, 1e-5, 256 / 60_000, 60 * 60_000 // 256)
    assert 2.4 < found < 2.95
    noise = noise_for(8.0, 1e-4, 0.2, 300)
    assert 7.9 < spent(noise, 1e-4, 0.2, 300) <= 8.0
    assert spent(2 * noise, 1e-4, 0.2, 300) < 4.0


def test_a_placebo_opens_as_many_parameters_as_the_policy():
    from governed.digits import Classifier, random_blocks

    model = Classifier(blocks=16)
    wanted = sum(one.numel() for one in model.head.parameters())
    for seed in range(20):
        chosen = random_blocks(model, "head", seed)
        size = sum(sum(one.numel() for one in model.get_submodule(name).parameters()) for name in chosen)
        assert 0.8 * wanted <= size <= wanted, (seed, chosen)
    assert len({tuple(random_blocks(model, "head", seed)) for seed in range(20)}) > 10


def test_parts_of_the_digits_are_apart_and_the_same_for_a_seed():
    from governed.digits import Classifier, accuracy, noisy_digits

    first, again, other = noisy_digits(3), noisy_digits(3), noisy_digits(4)
    assert torch.equal(first.test[0], again.test[0])
    assert not torch.equal(first.test[0], other.test[0])
    web = [first.data[index] for index in range(len(first.data)) if first.data.source_of(index) == "web"]
    assert 0.3 < len(first.wrong[0]) / len(web) < 0.5
    seen = {tuple(one[0].tolist()) for one in web}
    assert len(seen & {tuple(one.tolist()) for one in first.test[0]}) < 5  # a few digits are there twice
    assert 0 <= accuracy(Classifier(), first.test) <= 1


def test_a_text_in_blocks_is_read(tmp_path):
    from governed.text import read_text

    plain = tmp_path / "plain.txt"
    plain.write_text("in the beginning")
    assert read_text(plain) == "in the beginning"
    # One block in the simplest form of LZW: nine bits for each letter.
    letters = b"in the beginning"
    bits = "".join(format(one, "09b")[::-1] for one in letters)
    packed = bytes(int(bits[at : at + 8].ljust(8, "0")[::-1], 2) for at in range(0, len(bits), 8))
    begin = 0x5C + 4 * 2
    header = b"EC02Compressed Data File".ljust(0x54, b"\0") + struct.pack(">4I", 65536, 1, begin, begin + len(packed))
    (tmp_path / "bible.data").write_bytes(header + packed)
    assert read_text(tmp_path / "bible.data") == "in the beginning"
