"""Queries of output: lines packed in chunks, read by page or filter, cut by retention, by node.

No matching of users' patterns, no masking: those are services.
"""
