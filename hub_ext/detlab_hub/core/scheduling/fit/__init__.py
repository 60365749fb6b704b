"""Where a task fits: free slots by agent, agents that are alike, tasks over several nodes. Pure.

The order of tasks and the preemption victims are decided elsewhere in `core.scheduling`.
"""
