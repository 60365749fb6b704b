"""Make a data set, and log it as an artifact: python prepare.py [NUMBER OF ROWS]."""

import csv
import random
import sys

import detlab as det

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 200
with det.init(project="artifacts", job_type="prepare", config={"rows": rows}) as run:
    data = det.Artifact("lines", type="dataset", description="points near a line", metadata={"rows": rows})
    draw = random.Random(rows)
    for part in ("train", "test"):
        with data.new_file(f"{part}.csv") as file:
            writer = csv.writer(file)
            for _ in range(rows):
                x = draw.uniform(-1, 1)
                writer.writerow([x, 2 * x + 1 + draw.gauss(0, 0.1)])
    run.log_artifact(data, aliases=["newest-rows"])
    data.wait(60)
    print(f"lines:{data.version} has {rows} rows")
