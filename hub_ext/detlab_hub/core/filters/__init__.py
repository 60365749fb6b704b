"""The language of filters, one for all tables: its grammar, what its words mean in a table, completion. Pure.

Not here: SQL (store/queries/finding, store/queries/registry/search.py), and who may see what (core/rights).
"""
