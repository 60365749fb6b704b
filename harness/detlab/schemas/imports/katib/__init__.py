"""Katib's `Experiment` as an experiment config: its search, its trial template, and the jobs that it may start."""
