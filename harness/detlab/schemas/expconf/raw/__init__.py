"""Configs before they are judged: YAML to plain data with line and column, merging, and how a place in them is written.

Nothing here says whether a config is right: that is the part of `checks`.
"""
