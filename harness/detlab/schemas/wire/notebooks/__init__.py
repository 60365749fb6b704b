"""Wire models of schedules, which run notebooks later. The tasks that they start are in `schemas.taskwire`."""
