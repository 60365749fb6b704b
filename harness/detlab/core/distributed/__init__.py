"""`core_context.distributed`: ranks, their rendezvous, messages between them, and heartbeats.

Tensors are never sent here: that is the training framework's part. Neither torch nor the master's REST API is used.
"""
