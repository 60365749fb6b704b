"""Runs as MLflow's clients log and search them: names of metrics, and the language of their filters. Pure.

Not here: the filters of detlab itself (`core.filters`), and the messages of the protocol (`web.mlflow`).
"""
