"""Ids of checkpoints: random, of the form that the master takes, and no other trial's."""

from __future__ import annotations

import random
import uuid

from detlab.schemas.checkpoint_ids import made_for, new_checkpoint_id
from detlab_hub.services.checkpoints.manifests import is_uuid

MANY = 200


def test_an_id_is_its_trials_and_no_other_ones() -> None:
    for trial in (1, 7, 2**63 - 1):
        made = new_checkpoint_id(trial)
        assert made_for(made, trial)
        assert not any(made_for(made, other) for other in range(MANY) if other != trial)


def test_ids_are_uuids_of_version_8_and_none_is_drawn_twice() -> None:
    made = [new_checkpoint_id(7) for _ in range(MANY)]
    assert len(set(made)) == MANY
    for one in made:
        assert is_uuid(one)
        found = uuid.UUID(one)
        assert (found.variant, found.version) == (uuid.RFC_4122, 8)


def test_an_id_with_one_other_bit_is_nobodys() -> None:
    found = uuid.UUID(new_checkpoint_id(7))
    version_and_variant = {*range(76, 80), 62, 63}
    changed = [str(uuid.UUID(int=found.int ^ 1 << bit)) for bit in range(128) if bit not in version_and_variant]
    assert len(changed) == 122
    assert not any(made_for(one, 7) for one in changed)


def test_ids_that_tell_nothing_are_nobodys() -> None:
    for one in (str(uuid.uuid4()), str(uuid.UUID(int=1)), "11111111-1111-8111-0111-111111111111", "best", ""):
        assert not made_for(one, 7)


def test_ids_go_by_the_seed_of_whoever_seeds_uuid4(monkeypatch) -> None:
    def drawn(seed: int) -> list[str]:
        rng = random.Random(seed)
        monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=rng.getrandbits(128), version=4))
        return [new_checkpoint_id(7) for _ in range(3)]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_the_form_stays_as_it_is(monkeypatch) -> None:
    """Harness and master may be of different versions: they have to agree about it."""
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID("12345678-1234-4234-9234-123456789abc"))
    assert new_checkpoint_id(7) == "12345678-1234-8234-a588-bc078ca3c9f2"
