"""What agents of elastic pools count of their machine."""

from __future__ import annotations

from pathlib import Path

from detlab_hub.backends.instances.configuration import Surroundings, make_pools
from detlab_hub.backends.instances.local import LocalProvider
from detlab_hub.core.scheduling import UNBOUNDED, read_pools


def test_local_agents_count_no_more_than_their_pool_says_of_them(tmp_path: Path) -> None:
    """One that reports its machine's memory runs nothing that asks for more: the pool grew to its most, for nothing."""
    pools, mistakes = read_pools({"elastic": {"provider": {"type": "local", "slots": 1, "cpus": 2}}})
    assert not mistakes
    (pool,) = make_pools(pools, Surroundings(tmp_path, "http://127.0.0.1:1/", "c"))
    assert (pool.template.millicpus, pool.template.host_memory) == (2000, UNBOUNDED)
    assert isinstance(pool.provider, LocalProvider)
    told = " ".join(pool.provider._arguments)
    assert "--cpus 2 --memory 0" in told
    assert told.count("--cpus") == told.count("--memory") == 1
