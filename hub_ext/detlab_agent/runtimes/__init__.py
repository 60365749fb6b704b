"""Ways to run a task on this node."""
