"""A sweep of W&B as an experiment config: its search, its command, and its parameters."""
