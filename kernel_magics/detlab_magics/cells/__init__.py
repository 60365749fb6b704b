"""From notebook cells to a submission: cells as modules, variables in YAML, where a mistake is, and packing.

Nothing here shows anything, and no magic is declared here.
"""
