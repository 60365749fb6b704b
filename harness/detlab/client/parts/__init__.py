"""Parts of experiments, trials and checkpoints, by subject: what changes them, and the output of a trial.

The classes that have these parts are in `detlab.client.resources`; nothing here makes one of them.
"""
