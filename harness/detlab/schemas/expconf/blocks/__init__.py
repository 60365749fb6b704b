"""The blocks of the experiment config as pydantic models: their keys, types and defaults.

A new key goes here. Rules over several fields are in `checks`; reading and merging YAML is in `raw`.
"""
