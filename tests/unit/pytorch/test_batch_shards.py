"""Which rank processes which batches, and which parts of the output are stored anew: arithmetic, by the hundred."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest

from detlab.pytorch.experimental.outputs import RankOutputs, owner_of
from detlab.pytorch.experimental.shards import ShardPlan, StoredPart, count_batches, fold


def plans(samples: int, batch_size: int, batches: int, done: int, size: int) -> list[ShardPlan]:
    return [ShardPlan(samples, batch_size, batches, done, rank, size) for rank in range(size)]


@pytest.mark.parametrize("seed", range(200))
def test_every_sample_is_processed_once_however_often_it_stops_and_with_however_many_ranks(seed: int) -> None:
    draw = random.Random(seed)
    samples, batch_size = draw.randrange(0, 300), draw.randrange(1, 20)
    batches = count_batches(samples, batch_size, None, 1)
    seen: list[int] = []
    done = 0
    while done < batches:
        ranks = plans(samples, batch_size, batches, done, draw.randrange(1, 7))
        steps = draw.randrange(1, ranks[0].steps + 1)
        for plan in ranks:
            mine = [plan.batch_at(step) for step in range(steps)]
            seen += [sample for batch in mine if batch is not None for sample in plan.samples_of(batch)]
        done = ranks[0].done_after(steps)
    assert sorted(seen) == list(range(samples))


@pytest.mark.parametrize("seed", range(50))
def test_all_ranks_make_the_same_number_of_steps_and_differ_by_one_batch_at_most(seed: int) -> None:
    draw = random.Random(seed)
    samples, batch_size, size = draw.randrange(1, 300), draw.randrange(1, 20), draw.randrange(1, 7)
    batches = count_batches(samples, batch_size, None, size)
    ranks = plans(samples, batch_size, batches, draw.randrange(0, batches), size)
    assert len({plan.steps for plan in ranks}) == 1
    counts = [sum(plan.batch_at(step) is not None for step in range(plan.steps)) for plan in ranks]
    assert max(counts) - min(counts) <= 1
    assert ranks[0].done_after(ranks[0].steps) == batches


def test_max_batches_counts_for_each_rank() -> None:
    assert count_batches(100, 10, 3, 2) == 6
    assert count_batches(100, 10, 30, 2) == 10
    assert count_batches(101, 10, None, 2) == 11
    assert count_batches(0, 10, None, 2) == 0


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 100, 1000])
def test_few_parts_remain_and_each_byte_is_stored_few_times(count: int) -> None:
    parts: list[StoredPart] = []
    held: dict[str, set[int]] = {}
    stored = 0
    for number in range(count):
        kept, replaced, weight = fold(parts)
        assert [*kept, *replaced] == parts
        content = {number}.union(*(held.pop(part.uuid) for part in replaced))
        assert len(content) == weight
        stored += weight
        held[str(number)] = content
        parts = [*kept, StoredPart(str(number), weight)]
        assert set().union(*held.values()) == set(range(number + 1))
    levels = count.bit_length()
    assert len(parts) <= levels
    assert stored <= count * levels
    assert all(one.weight > two.weight for one, two in pairwise(parts))


@pytest.mark.parametrize(
    ("name", "rank"),
    [("rank0/a", 0), ("rank12/b/c", 12), ("rank/a", None), ("rank1", None), ("outputs.json", None), ("rank²/a", None)],
)
def test_a_rank_owns_what_is_in_its_folder(name: str, rank: int | None) -> None:
    assert owner_of(name) == rank


def test_a_part_holds_what_is_new_and_what_the_parts_that_go_had(tmp_path: Path) -> None:
    outputs = RankOutputs(tmp_path, 0, 1)
    (outputs.folder / "a").write_text("1")
    assert outputs.collect(0) == {"rank0/a"}
    (outputs.folder / "b").write_text("1")
    assert outputs.collect(1) == {"rank0/b"}
    assert outputs.collect(2) == set()
    (outputs.folder / "a").write_text("12")
    assert outputs.collect(2) == {"rank0/a"}
    assert outputs.collect(1) == {"rank0/a", "rank0/b"}
    (outputs.folder / "b").unlink()
    assert outputs.collect(2) == set()
    assert outputs.removed == {"rank0/b"}
    (outputs.folder / "b").write_text("again")
    assert outputs.collect(2) == {"rank0/b"}
    assert outputs.removed == set()
    assert outputs.listed() == {"rank0/a": 2, "rank0/b": 5}


def test_what_is_fetched_belongs_to_its_part_and_what_was_removed_stays_away(tmp_path: Path) -> None:
    outputs = RankOutputs(tmp_path, 0, 2)
    (tmp_path / "rank2").mkdir()  # of an attempt with more ranks
    (tmp_path / "rank2" / "a").write_text("1")
    outputs.restored(0)
    (outputs.folder / "b").write_text("1")
    outputs.restored(1)
    outputs.forget(["rank2/a", "rank1/x"])
    assert outputs.removed == {"rank2/a"}
    assert not (tmp_path / "rank2" / "a").exists()
    assert outputs.collect(2) == set()
    assert outputs.collect(1) == {"rank0/b"}
