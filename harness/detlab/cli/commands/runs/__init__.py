"""Commands of runs that no cluster started: `det track`, `det sync`, `det run`.

Not here: experiments and trials, which a cluster runs.
"""
