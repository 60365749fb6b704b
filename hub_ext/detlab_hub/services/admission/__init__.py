"""Admission of submissions: configs prepared, bundles stored, feasibility, limits per user, quotas.

Nothing here starts or places anything.
"""
