"""The code of a trial, run where no agent has started it: a segment that is trained anew to compare its weights.

It reports to nobody. Nothing of a task that a cluster has placed is here.
"""
