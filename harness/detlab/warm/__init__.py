"""The zygote of the warm pool: a process that has imported torch and is forked into trials.

`zygote` waits for the agent and forks; `child` is the launcher in what it forked; `interpreter` is the trial: it makes
a forked interpreter look like one that has just been started. See docs/decisions/0009-warm-pool.md.
"""
