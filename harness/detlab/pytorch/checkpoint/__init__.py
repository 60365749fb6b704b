"""How a trial's whole state becomes files without pickle, and comes back: codec, tensors, code, writing, resuming.

When a checkpoint is due is decided in `detlab.pytorch.loop`; uploading and committing it is `detlab.core`'s part.
"""
