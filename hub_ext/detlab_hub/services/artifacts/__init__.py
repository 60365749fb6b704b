"""Artifacts: named folders in versions, which runs use and make; their files, and how they came about.

Not here: media of trials (`services.ingest.media`), and files of runs of MLflow's clients (`services.tracking`).
"""
