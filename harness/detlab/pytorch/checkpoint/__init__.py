"""Checkpoints of a trial's whole state as files without pickle: codec, tensors, code, writing, resuming.

When a checkpoint is due is decided in `detlab.pytorch.loop`; uploading and committing it is `detlab.core`'s part.
"""
