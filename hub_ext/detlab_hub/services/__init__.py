"""Use cases of the master: load, step, write and journal in one transaction; then publish, then act."""

from detlab_hub.services.callers import AgentCaller, Caller, EnrolCaller, TaskCaller
from detlab_hub.services.master import Services
from detlab_hub.services.settings import Settings

__all__ = ["AgentCaller", "Caller", "EnrolCaller", "Services", "Settings", "TaskCaller"]
