"""What people do with experiments that exist: fork and continue one, and the same to many.

Not here: what shows them, in `commands/experiment.py`, or writes about one, in `commands/experiment_edit.py`.
"""
