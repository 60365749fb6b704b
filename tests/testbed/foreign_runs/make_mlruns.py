"""Make the folder of mlruns-mlflow3.zip or mlruns-mlflow2.zip with MLflow itself: python make_mlruns.py FOLDER

With the Python of .venv-mlflow or .venv-mlflow2, in an otherwise empty environment.
"""

import math
import os
import pathlib
import sys
from typing import Any

import mlflow
import numpy as np
from mlflow import MlflowClient


def double(model_input: list[int]) -> list[int]:
    """Be a model."""
    return [2 * one for one in model_input]


def digits(client: Any) -> None:
    """Log a run with everything in it, and its child; register the model."""
    mlflow.set_experiment("digits")
    with mlflow.start_run(run_name="parent", description="a **note**"):
        mlflow.log_params({"lr": 0.1, "opt": "adam", "net/depth": 3})
        for step in range(5):
            mlflow.log_metric("loss", 1 / (step + 1), step=step)
            mlflow.log_metric("val/acc", step / 5, step=step)
        mlflow.log_metrics({"odd": math.nan, "big": math.inf}, step=1)
        mlflow.set_tags({"team": "vision", "mlflow.user": "ada"})
        mlflow.log_text("hello", "notes/hello é+.txt")
        mlflow.log_dict({"a": 1}, "x.json")
        mlflow.log_input(mlflow.data.from_numpy(np.zeros((2, 2)), name="zeros"), context="training")
        named = {"name": "model"} if mlflow.__version__ > "3" else {"artifact_path": "model"}
        info = mlflow.pyfunc.log_model(python_model=double, pip_requirements=["mlflow"], **named)
        with mlflow.start_run(run_name="child", nested=True):
            mlflow.log_metric("loss", 9.0)
    mlflow.register_model(info.model_uri, "doubler")
    client.update_model_version("doubler", "1", description="the first")
    client.set_model_version_tag("doubler", "1", "by", "ada")
    client.set_registered_model_alias("doubler", "champion", "1")


def others(client: Any) -> None:
    """Log a run that fails, and what is deleted."""
    mlflow.set_experiment("other")
    failed = mlflow.start_run(run_name="fails")
    mlflow.log_metric("loss", 3.0)
    mlflow.end_run("FAILED")
    gone = mlflow.start_run(run_name="gone")
    mlflow.end_run()
    assert failed.info.run_id != gone.info.run_id
    client.delete_run(gone.info.run_id)
    client.create_experiment("removed")
    client.delete_experiment(client.get_experiment_by_name("removed").experiment_id)


if __name__ == "__main__":
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    if "://" in sys.argv[1]:
        mlflow.set_tracking_uri(sys.argv[1])
    else:
        folder = pathlib.Path(sys.argv[1]).resolve()
        folder.parent.mkdir(parents=True, exist_ok=True)
        os.chdir(folder.parent)
        mlflow.set_tracking_uri(folder.as_uri())
    digits(MlflowClient())
    others(MlflowClient())
