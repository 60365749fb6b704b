"""Commands that find things: the search of trials, saved views.

Not here: the lists of experiments and of one experiment's trials, which take a filter.
"""
