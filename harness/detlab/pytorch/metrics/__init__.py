"""What the numbers of many batches and ranks come to: collecting, reducing and writing them for TensorBoard.

When to report is decided in `detlab.pytorch.loop`; how reports reach the master is `detlab.core`'s part.
"""
