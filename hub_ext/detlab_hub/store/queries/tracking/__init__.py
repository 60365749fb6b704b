"""Runs that no cluster started, and trials as clients of MLflow see them: written, read and searched.

Not here: reports into the metrics of a trial (`queries.metrics`), and who may read what (`services.base.access`).
"""
