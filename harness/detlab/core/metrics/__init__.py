"""Reports of a trial: metrics and their spool, TensorBoard files, and samples of the node's resources.

Nothing here waits for the master: the launcher ships what the spool holds. Reducing metrics over ranks is the
trainer's.
"""
