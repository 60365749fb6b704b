"""`PyTorchTrialContext` and its parts: what a trial says to the trainer, and what it may ask about itself.

Training steps and their order are never decided here: that is the loop's part. How ranks share work is in `parallel`.
"""
