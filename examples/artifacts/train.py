"""Fit a line to a version of the data set, and log the fit as an artifact: python train.py [VERSION]."""

import csv
import json
import sys

import detlab as det

version = sys.argv[1] if len(sys.argv) > 1 else "latest"
with det.init(project="artifacts", job_type="train", config={"data": version}) as run:
    data = run.use_artifact(f"lines:{version}")
    folder = data.download()
    with (folder / "train.csv").open(newline="") as file:
        points = [(float(x), float(y)) for x, y in csv.reader(file)]

    slope, bias = 0.0, 0.0
    for step in range(50):
        errors = [(slope * x + bias - y, x) for x, y in points]
        slope -= 0.5 * sum(error * x for error, x in errors) / len(points)
        bias -= 0.5 * sum(error for error, _ in errors) / len(points)
        det.log({"loss": sum(error * error for error, _ in errors) / len(points)}, step=step)

    model = det.Artifact("line-fit", type="model", metadata={"data": f"v{data.version}"})
    with model.new_file("fit.json") as file:
        json.dump({"slope": slope, "bias": bias}, file)
    run.log_artifact(model).wait(60)
    print(f"line-fit:{model.version} of lines:v{data.version}: slope {slope:.2f}, bias {bias:.2f}")
