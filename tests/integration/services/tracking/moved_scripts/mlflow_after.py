import os
import tempfile

import mlflow
from mlflow import MlflowClient

TRACKING_URI = os.environ["MLFLOW_TRACKING_URI"]


def train(alpha, rounds):
    error = 1.0
    for step in range(rounds):
        error *= 1 - alpha
        mlflow.log_metric("rmse", error, step=step)
    return error


if __name__ == "__main__":
    mlflow.set_tracking_uri(TRACKING_URI)
    mlflow.set_experiment("wine-quality")
    with mlflow.start_run(run_name="elastic-net") as run:
        mlflow.log_params({"alpha": 0.5, "rounds": 4})
        mlflow.set_tag("stage", "baseline")
        error = train(0.5, 4)
        mlflow.log_metric("final_rmse", error)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "summary.txt")
            with open(path, "w") as file:
                file.write(f"rmse {error}")
            mlflow.log_artifact(path, "report")
    history = MlflowClient().get_metric_history(run.info.run_id, "rmse")
    print(len(history), mlflow.get_run(run.info.run_id).info.status)
