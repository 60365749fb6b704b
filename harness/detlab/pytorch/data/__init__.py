"""The samples of a rank, their order, and the position of training in them: loaders, epochs, fetching and resuming.

Everything is a function of seed, epoch and counts. Models, metrics and the master are not used here.
"""
