"""The main job from start to end: a cluster on this machine, the notebook headless, the result in numbers.

Run by `make demo`. Exits 0 only if the cluster came up, the notebook ran through (it asserts that the best model
recognises at least 97 % of unseen digits) and the search's table could be read back.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
BIN = pathlib.Path(sys.executable).parent


def run(*command: str, env: dict[str, str] | None = None, cwd: pathlib.Path | None = None) -> None:
    """Run a command of this environment in the foreground; leave with its status if it fails."""
    print(f"==> {' '.join(command)}", flush=True)
    done = subprocess.run([str(BIN / command[0]), *command[1:]], env=env, cwd=cwd, check=False)
    if done.returncode != 0:
        print(f"make demo: '{command[0]} {command[1]}' failed with status {done.returncode}", file=sys.stderr)
        sys.exit(done.returncode if 0 < done.returncode < 126 else 1)


def newest_experiment(env: dict[str, str]) -> dict[str, object]:
    """Return the experiment that the notebook made."""
    listing = subprocess.run(
        [BIN / "det", "experiment", "list", "--limit", "1", "--json"],
        env=env,
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(listing.stdout)[0]


def main() -> None:
    """Parse the options, run the job, print where everything is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("demo-output"), help="where results go")
    parser.add_argument("--dir", type=pathlib.Path, default=pathlib.Path(".detlab"), help="the cluster's state folder")
    parser.add_argument("--port", default="8642", help="public port of the cluster")
    parser.add_argument("--slots", default=str(max(2, os.cpu_count() or 2)), help="trials that run at a time")
    parser.add_argument("--trials", default="16", help="trials of the search")
    options = parser.parse_args()
    out, folder = options.out.resolve(), options.dir.resolve()
    out.mkdir(parents=True, exist_ok=True)

    run("det", "up", "--dir", str(folder), "--port", options.port, "--slots", options.slots)
    cluster = json.loads((folder / "cluster.json").read_text())
    token = (folder / "secrets" / "user_token").read_text().strip()
    env = {**os.environ, "DET_URL": cluster["url"], "DET_TOKEN": token, "PATH": f"{BIN}:{os.environ['PATH']}"}

    executed = out / "digits_search.ipynb"
    run(
        "papermill", str(HERE / "digits_search.ipynb"), str(executed), "-p", "trials", options.trials,
        "--kernel", "python3", "--cwd", str(out), "--no-progress-bar", "--log-output", env=env,
    )  # fmt: skip
    run("jupyter-nbconvert", "--log-level", "WARN", "--to", "html", str(executed), env=env)

    experiment = newest_experiment(env)
    print()
    run("det", "experiment", "list-trials", str(experiment["id"]), env=env)
    print(f"\nexperiment   {experiment['id']} {experiment['name']}: {experiment['state']}")
    print(f"notebook     {executed}")
    print(f"as a page    {executed.with_suffix('.html')}")
    print(f"checkpoint   {out / 'best-checkpoint'}")
    print(f"open         {cluster['url']}/services/detlab/")
    print(f"log in       as {cluster['user']}; the password is in {folder}/secrets/admin_password")
    print(f"stop it      det down --dir {folder}")
    sys.exit(0 if experiment["state"] == "COMPLETED" else 1)


if __name__ == "__main__":
    main()
