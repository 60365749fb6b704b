"""What running tasks report and ask: metrics, lines, progress, checkpoints, rendezvous, their tokens.

Every write is fenced by attempt. What people ask about the same things is in `experiments` and `usertasks`.
"""
