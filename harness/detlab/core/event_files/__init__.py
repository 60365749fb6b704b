"""What a script writes for TensorBoard, read while it runs: scalars become metrics, images and the like media.

Everything here runs in the user's own task and reads what its code wrote: it takes an allow-list of small messages, has
a limit for each thing that a file can say, and never raises into a training. Neither TensorBoard nor a library of
protocol buffers is needed. Event files are written elsewhere (`detlab.pytorch.metrics`, `detlab.run.tensorboard`).
"""
