"""The same act on many experiments, each with its own rights and its own answer.

Not here: what an act does, which is the service's that does it to one.
"""
