"""The HTTP face of the master: thin handlers, one scope each, under `/services/detlab/`.

A module per resource. Each handler declares its paths; `routes` finds them in the modules that there are.
"""
