"""When code goes: a bundle that nothing runs any more, after a time in which it may be run again."""

from __future__ import annotations


def code_goes(unused_since: float | None, now: float, keep: float) -> bool:
    """Whether a bundle is to be removed.

    Args:
        unused_since: When it was first found that no experiment and no task names it, since it was last sent; None: one
            does, or nobody has looked.
        now: The time.
        keep: Seconds for which it stays; 0: for ever.
    """
    return keep > 0 and unused_since is not None and now - unused_since >= keep
