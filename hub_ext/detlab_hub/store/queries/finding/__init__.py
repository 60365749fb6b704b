"""Filters as SQL with bound parameters: conditions, orders, columns and names, over trials and over experiments.

Not here: the language (core/filters), and who may see what (store/queries/rights.py).
"""
