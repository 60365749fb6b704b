"""`PyTorchTrialContext` and its parts: the interface of a trial to the trainer, and information about the trial.

Training steps and their order are never decided here: that is the loop's part. How ranks share work is in `parallel`.
"""
