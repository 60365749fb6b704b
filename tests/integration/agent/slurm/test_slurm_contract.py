"""The runtime `slurm` keeps the contract of runtimes, on a real Slurm of two nodes."""

from detlab.testing.runtimes import RuntimeContract


class TestSlurm(RuntimeContract):
    runtime = "slurm"
    tasks_are = "elsewhere"

    def launch(self, master, entrypoint, **options):
        options.setdefault("slots", ["any0"])
        return super().launch(master, entrypoint, **options)

    def left_behind(self, agent, task):
        name = task.launch.allocation_id
        places = (agent.directory / "tasks", agent.directory / "slurm")
        files = [path for place in places for path in place.iterdir() if path.name.startswith(name)]
        return [*files, *(job for job in agent.slurm.jobs() if job == f"detlab-{name}")]
