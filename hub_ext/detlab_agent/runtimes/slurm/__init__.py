"""Tasks as jobs of a Slurm cluster: its commands, the job's script, the watch over all jobs, and how a job ended.

Slurm chooses the nodes. What every runtime does for a task is one level up. Nothing here talks to the master.
"""
