"""`python3 -m detlab.launch.deepspeed`: the processes of a DeepSpeed script; see `__main__`."""
