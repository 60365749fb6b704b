"""What MLflow has: a tracking server, asked by its REST API, or a folder `mlruns/`, read as it is."""
