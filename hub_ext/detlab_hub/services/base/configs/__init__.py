"""Parts of configs that are laid under or over others, and the config policies that every change of one is held to.

Nothing here reads templates or starts anything: what is submitted is completed in `admission.configs`.
"""
