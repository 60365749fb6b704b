"""`core_context.checkpoint`: storing, sharding, restoring and deleting checkpoints, and removing abandoned uploads.

How a storage backend keeps files is in `detlab.storage`; what a trainer puts into a checkpoint is in
`detlab.pytorch`.
"""
