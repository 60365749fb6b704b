"""Cells on borrowed slots: what one ships, its output and its end while it runs.

Parsing the magic is in `taskmagics`; what runs on the cluster's side is `detlab.run.cell`.
"""
