"""`det backup` and `det restore`: the state of an embedded cluster as one archive, and an archive as a cluster.

Never what only a running cluster knows, nor logs, homes and the agent's own files.
"""
