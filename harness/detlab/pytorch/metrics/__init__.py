"""Metrics over many batches and ranks: collecting and reducing them, and writing them for TensorBoard.

When to report is decided in `detlab.pytorch.loop`; how reports reach the master is `detlab.core`'s part.
"""
