"""Use cases of the master: load, step, write and journal in one transaction; then publish, then act."""

from typing import TYPE_CHECKING, Any

from detlab_hub.services.base.callers import AgentCaller, Caller, EnrolCaller, TaskCaller

if TYPE_CHECKING:
    from detlab_hub.services.base.settings import Settings
    from detlab_hub.services.master import Services

__all__ = ["AgentCaller", "Caller", "EnrolCaller", "Services", "Settings", "TaskCaller"]


def __getattr__(name: str) -> Any:
    """Load the master when it is asked for: a Hub takes only the names of scopes from this package."""
    if name == "Services":
        from detlab_hub.services.master import Services

        return Services
    if name == "Settings":
        from detlab_hub.services.base.settings import Settings

        return Settings
    raise AttributeError(name)
