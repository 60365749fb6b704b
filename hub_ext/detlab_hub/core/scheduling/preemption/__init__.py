"""Preemption: which allocations give their slots back for a task that comes first. Pure.

Starting, reserving and backfilling are not decided here.
"""
