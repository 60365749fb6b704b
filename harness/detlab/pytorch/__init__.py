"""The trainer: write a `PyTorchTrial`, and `Trainer.fit` trains it, on one process or many, resumed to the bit.

Names and signatures are those of Determined 0.38's `determined.pytorch`.
"""
