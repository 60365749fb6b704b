"""The model registry's rules: semantic versions and formats of files. Pure.

Not here: the tables (store/tables/registry.py), and who may do what (core/rights).
"""
