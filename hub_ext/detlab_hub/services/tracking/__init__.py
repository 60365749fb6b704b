"""Runs that no cluster started, and trials as clients of MLflow see them: made, logged, read, searched; their files.

Not here: MLflow's messages (`web.mlflow`), reports of the harness (`services.ingest`), versions (`services.registry`).
"""
