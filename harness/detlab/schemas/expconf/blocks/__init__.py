"""The blocks of the experiment config as pydantic models: their keys, types and defaults.

A new key goes here. What one field cannot judge alone is in `checks`; reading and merging YAML is in `raw`.
"""
