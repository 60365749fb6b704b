"""Every mistake of a raw config at once: unknown keys with suggestions, rules over several keys, what cannot run yet.

Nothing here changes a config or fills in defaults, and the models themselves are in `blocks`.
"""
