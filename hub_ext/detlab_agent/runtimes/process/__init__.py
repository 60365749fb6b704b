"""Tasks as process groups of this node: start and end, control groups, private networks, the pool of warm starts.

What every runtime does for a task is one level up. Nothing here talks to the master.
"""
