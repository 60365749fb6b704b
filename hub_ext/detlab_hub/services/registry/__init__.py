"""The model registry: models, versions with their lineage, labels that move, comparisons and searches.

Not here: the checkpoints themselves (services/checkpoints), exports for other tools, and rights
(services/base/access.py).
"""
