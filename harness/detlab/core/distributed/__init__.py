"""`core_context.distributed`: ranks, how they find each other, the messages between them, and their heartbeats.

Tensors never travel here: that is the training framework's part. Neither torch nor the master's REST API is used.
"""
