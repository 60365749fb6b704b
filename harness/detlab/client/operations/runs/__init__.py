"""Operations on runs of several experiments at once: comparing them.

What concerns one experiment or one trial lives beside this package, never here.
"""
