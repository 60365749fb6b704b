"""Groups of ranks as threads, and torch with one thread of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from testbed.rank_threads import RankThreads, rank_threads


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Let torch compute in one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def groups(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[int, RankThreads]]:
    """Groups of ranks, one of each size that the test's module names in `SIZES`."""
    with rank_threads(request.module.SIZES, tmp_path_factory.mktemp("ranks")) as made:
        yield made
