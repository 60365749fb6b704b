"""`core_context.preempt`: the request to save the state and exit, received by a long poll beside the training.

Whom the master preempts, and when, is never decided here.
"""
