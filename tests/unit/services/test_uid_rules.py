"""How the uids that a node has given compare with those of the master, and what is wrong with a user map."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab.launch.host.identity import IdentityError, UidRules
from detlab_hub.services.base.settings import UidPolicy, errors_in
from detlab_hub.services.lifecycle.uids import disagreements

NAMES = st.sampled_from(["ada", "ben", "carol", "mallory"])
UIDS = st.integers(20_000, 20_004)
MAPS = st.dictionaries(NAMES, UIDS)
UNIQUE = MAPS.filter(lambda found: len(set(found.values())) == len(found))


@pytest.mark.parametrize(
    ("there", "told"),
    [
        ({}, []),
        ({"ada": 20_000, "ben": 20_001}, []),
        ({"carol": 20_005}, []),
        ({"ada": 20_001}, ["'ada' has uid 20001 there and 20000 here"]),
        ({"carol": 20_000}, ["'carol' has uid 20000 there, which is that of 'ada' here"]),
        (
            {"ada": 20_001, "ben": 20_000},
            ["'ada' has uid 20001 there and 20000 here", "'ben' has uid 20000 there and 20001 here"],
        ),
    ],
)
def test_a_node_that_gave_a_user_another_uid_or_a_uid_to_another_user_is_named(
    there: dict[str, int], told: list[str]
) -> None:
    assert [said for _, said in disagreements(there, {"ada": 20_000, "ben": 20_001})] == told


@given(UNIQUE, MAPS)
def test_of_a_node_that_agrees_no_file_is_anothers(assigned: dict[str, int], there: dict[str, int]) -> None:
    mixed = any((name == other) != (uid == theirs) for name, uid in assigned.items() for other, theirs in there.items())
    assert bool(disagreements(there, assigned)) == mixed


@given(UNIQUE, MAPS, NAMES, UIDS)
def test_what_the_master_lets_in_the_agent_launches_and_refuses_what_comes_to_clash_later(
    assigned: dict[str, int], there: dict[str, int], late: str, uid: int
) -> None:
    """Users who get their uid after the node was compared: the agent itself is the last to look."""
    node = UidRules(given=there, name_of={}.get)
    if not disagreements(there, assigned):
        for name, theirs in assigned.items():
            assert node.identity(name, theirs, account=False).uid == theirs
    clash = any((late == name) != (uid == theirs) for name, theirs in there.items())
    if clash:
        with pytest.raises(IdentityError, match="ran on this node"):
            node.identity(late, uid, account=False)
    else:
        assert node.identity(late, uid, account=False).uid == uid


def test_a_map_names_no_account_twice_and_never_root() -> None:
    assert errors_in(UidPolicy(mapped={"ada": 1005, "ben": 1006})) == []
    (root, twice) = errors_in(UidPolicy(mapped={"ada": 0, "ben": 1005, "carol": 1005}))
    assert "'ada'" in root
    assert "never run as root" in root
    assert "'carol' and 'ben' have the same uid 1005" in twice
