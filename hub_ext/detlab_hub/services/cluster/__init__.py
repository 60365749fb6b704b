"""The cluster as a whole, for administrators and front ends: overview, health, usage, tokens, refused access.

Nothing here changes an experiment or a task, except the drain of the whole cluster.
"""
