"""Whether what is submitted may come in: configs prepared, bundles taken, feasibility, limits per user, quotas.

Nothing here starts or places anything.
"""
