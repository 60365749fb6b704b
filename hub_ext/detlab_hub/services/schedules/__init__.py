"""Schedules: notebook runs that start by the clock, or after something has completed, with their owner's rights then.

Not here: what a cron expression means (`core.schedules`), and what becomes of a run that was started (`usertasks`).
"""
