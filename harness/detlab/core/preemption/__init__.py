"""`core_context.preempt`: learning, by a long poll beside the training, that the trial shall save its state and exit.

Whom the master preempts, and when, is never decided here.
"""
