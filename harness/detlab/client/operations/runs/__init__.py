"""Operations on runs of several experiments at once, and on those that no cluster started.

What concerns one experiment or one trial lives beside this package, never here.
"""
