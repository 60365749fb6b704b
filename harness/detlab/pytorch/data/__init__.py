"""Which samples a rank sees, in which order, and where training is in them: loaders, epochs, fetching and resuming.

Everything is a function of seed, epoch and counts. Neither models nor metrics nor the master are known here.
"""
