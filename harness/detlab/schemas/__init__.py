"""Data formats of detlab: experiment configs and wire models. Pure."""
