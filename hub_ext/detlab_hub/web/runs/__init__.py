"""Routes of runs that no cluster started: what their scripts send, and what people read of them.

Not here: MLflow's protocol, a face of the same runs (`web.mlflow`).
"""
