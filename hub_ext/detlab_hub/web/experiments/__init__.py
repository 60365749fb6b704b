"""Routes of experiments and trials: submit, list, change, code, checkpoints, grants, streams.

A handler parses, calls one service and replies; no decision is made here.
"""
