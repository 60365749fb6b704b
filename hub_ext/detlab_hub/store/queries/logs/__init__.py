"""Queries of output: lines packed in chunks, read by page or filter, cut by retention, by node.

Not here: matching of users' patterns, and masking; these are in the services.
"""
