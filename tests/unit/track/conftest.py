"""Fixtures of runs; what they are made of is in `track_doubles`."""

from track_doubles import kept_master, make_run

__all__ = ["kept_master", "make_run"]
