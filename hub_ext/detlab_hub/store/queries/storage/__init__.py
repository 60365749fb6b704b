"""Bytes that are stored: who uses how many of them.

Checkpoints themselves are in `queries.checkpoints`; no file is looked at here.
"""
