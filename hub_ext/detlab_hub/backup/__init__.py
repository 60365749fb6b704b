"""`det backup` and `det restore`: the state of an embedded cluster as one archive, and an archive as a cluster.

Never in it: the memory of a running cluster, logs, homes and the agent's own files.
"""
