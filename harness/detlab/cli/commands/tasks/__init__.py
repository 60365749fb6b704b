"""The sub-commands of user tasks: `det task`, `cmd`, `notebook`, `shell`, `tensorboard`, and what they share.

A new kind of user task gets its group here. Experiments, trials and checkpoints never do; talking to a running shell
is in `detlab.cli.terminal`.
"""
