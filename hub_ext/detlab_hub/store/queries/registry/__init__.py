"""Queries of the model registry: models, versions, labels, and the search for the best version.

Not here: who may see what (store/queries/rights.py), and the language of searches (core/filters).
"""
