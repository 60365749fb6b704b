"""What one call that logs a scalar costs a loop, in the environment of a peer: prints one JSON object.

    python client_calls.py tensorboard|wandb|mlflow CALLS FOLDER [ADDRESS]

The loop is that of bench/client.py: a little work, one call, again.
"""

import json
import os
import sys
import time


def work():
    return sum(range(2000))


def measure(call, calls):
    taken = []
    for step in range(calls):
        work()
        began = time.perf_counter()
        call(step, 1.0 / (step + 1))
        taken.append(time.perf_counter() - began)
    return taken[calls // 10 :]


def tensorboard(folder, address):
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(folder)
    return lambda step, value: writer.add_scalar("loss", value, step)


def wandb(folder, address):
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DIR=folder)
    import wandb as library

    run = library.init(project="bench", dir=folder, mode="offline")
    return lambda step, value: run.log({"loss": value}, step=step)


def mlflow(folder, address):
    import mlflow as library

    library.set_tracking_uri(address)
    library.set_experiment("client")
    library.start_run()
    return lambda step, value: library.log_metric("loss", value, step=step)


def main():
    kind, calls, folder, *address = sys.argv[1:]
    call = {"tensorboard": tensorboard, "wandb": wandb, "mlflow": mlflow}[kind](folder, *(address or [""]))
    print(json.dumps({"taken": measure(call, int(calls))}), flush=True)
    os._exit(0)  # no goodbye to servers that the bench ends anyway


if __name__ == "__main__":
    main()
