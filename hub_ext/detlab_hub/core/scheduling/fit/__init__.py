"""Where a task fits: free slots by agent, agents that are alike, tasks over several nodes. Pure.

Who comes first and who has to leave is decided elsewhere in `core.scheduling`.
"""
