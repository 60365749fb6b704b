"""Reports and requests of running tasks: metrics, lines, progress, checkpoints, rendezvous, their tokens.

Every write is fenced by attempt (I3). Users' reads of the same data are in `experiments` and `usertasks`.
"""
