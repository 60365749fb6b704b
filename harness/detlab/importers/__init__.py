"""Runs of other tracking systems, copied into the tracked runs of a cluster: `det import mlflow`, `det import wandb`.

What reads a foreign system is below `mlflow` and `wandb`; what writes is a client of the master's tracking API, with
the user's token. Nothing here imports another system's package, unpickles, or follows a link.
"""
