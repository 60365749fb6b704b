"""From rows to the views of experiments, trials and tasks, masked and limited to each caller's rights.

Reads only. Views of the queue, agents and pools are made in their own packages.
"""
