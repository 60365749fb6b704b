"""Ids of checkpoints that encode the trial that made them, so that no other trial can claim them.

A checkpoint's files lie under its id before the master knows of it, through an outage for hours, and every user who may
list the shared storage can read the id there. The owner cannot be looked up yet, so the id itself proves it.
"""

from __future__ import annotations

import hashlib
import uuid

_VERSION = 8
"""Of UUIDs whose bits have a meaning of their maker's own (RFC 9562, section 5.8)."""
_FORM = 0xF << 76 | 0b11 << 62
"""The bits of the version and the variant."""
_TAG = (1 << 62) - 1
"""The bits that tell the trial: all that follow the variant."""


def new_checkpoint_id(trial_id: int) -> str:
    """Draw the id of a new checkpoint of a trial: 60 random bits, and 62 that follow from them and the trial."""
    return checkpoint_id(uuid.uuid4().int, trial_id)  # the one seam of randomness, which the simulation seeds


def checkpoint_id(drawn: int, trial_id: int) -> str:
    """Return the id of a trial's checkpoint that has its random bits from a number of 128 bits."""
    head = drawn & ~_TAG & ~_FORM | _VERSION << 76 | 0b10 << 62
    return str(uuid.UUID(int=head | _tag(head, trial_id)))


def made_for(checkpoint_id: str, trial_id: int) -> bool:
    """Whether an id is one of a trial's.

    False for every id that is not a UUID of version 8: that one tells nothing of who stored the files. They may be
    another user's, or another program's, whose checkpoints have names like ours; who commits them could remove them.
    """
    try:
        found = uuid.UUID(checkpoint_id)
    except ValueError:
        return False
    return found.version == _VERSION and found.int & _TAG == _tag(found.int & ~_TAG, trial_id)


def _tag(head: int, trial_id: int) -> int:
    told = hashlib.sha256(f"detlab checkpoint {head:032x} of trial {trial_id}".encode()).digest()
    return int.from_bytes(told[:8], "big") & _TAG
