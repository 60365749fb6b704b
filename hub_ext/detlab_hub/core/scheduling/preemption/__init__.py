"""Preemption: which allocations release their slots for a task ahead of them. Pure.

Starting, reserving and backfilling are not decided here.
"""
