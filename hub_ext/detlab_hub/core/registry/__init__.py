"""The model registry's rules: semantic versions, formats of files, and the language of queries. Pure.

Not here: the tables (store/tables/registry.py), and who may do what (core/rights).
"""
