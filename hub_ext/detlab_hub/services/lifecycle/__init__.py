"""The shell around the pure machines of `core.lifecycle`: load a row, step, write it back, collect the actions.

Trials, experiments, user tasks and allocations change state here and nowhere else. No placing, no views, no HTTP.
"""
