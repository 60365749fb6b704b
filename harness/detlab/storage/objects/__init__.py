"""Checkpoints as objects in a store that speaks HTTP: S3, Google Cloud Storage, Azure.

Here is everything between `StorageManager` and a client library: transfers, layout, errors. The keys of the config are
in `detlab.schemas`; which checkpoints are kept and what the master commits are not decided here.
"""
