"""Failure cards: from how a task ended and its last lines to what went wrong, where, and what to do.

Reads rows and output, changes nothing. What a failure means for the next attempt is decided in `lifecycle`.
"""
