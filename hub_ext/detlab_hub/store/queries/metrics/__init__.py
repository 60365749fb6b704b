"""Queries of metrics: reports folded into series, points and rollups; curves and summaries read back.

What a report means for a search or a trial is decided in the services.
"""
