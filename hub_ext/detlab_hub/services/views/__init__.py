"""From rows to what callers see of experiments, trials and tasks, masked and by what each may see.

Reads only. Views of the queue, agents and pools are made where these live.
"""
