"""Notes that several people edit: nobody replaces unseen what another has written meanwhile."""

from __future__ import annotations

from detlab.errors import Conflict
from detlab_hub.store.tables import clean_text


def check_notes(what: str, now: str | None, wanted: str | None, before: str | None) -> None:
    """Check that an edit of notes replaces those that its author has seen.

    Args:
        what: Whose notes, such as "experiment 12".
        now: The notes as they are.
        wanted: What they are to become; None: they stay.
        before: What they were when they were opened for editing; None: that was not said, and anything is replaced.

    Raises:
        Conflict: Somebody has changed them since.
    """
    if wanted is None or before is None or clean_text(wanted) == (now or ""):
        return
    if clean_text(before) != (now or ""):
        raise Conflict(
            f"the notes of {what} have been changed since you opened them; nothing was changed",
            hint="Open them again, and write yours into them",
        )
