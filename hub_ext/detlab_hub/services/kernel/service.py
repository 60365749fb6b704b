"""What a service is, and how it is found: by its class, made when it is first asked for."""

from __future__ import annotations

from typing import Any, Self, TypeVar

from detlab_hub.services.kernel.shell import Shell


class Service:
    """The use cases of one subject. A master has one of each class, which `services[Class]` returns."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    @classmethod
    def made_for(cls, services: ServiceLookup) -> Self:
        """Make the one of a master; a class whose constructor takes other services asks for them here."""
        return cls(services.shell)


S = TypeVar("S", bound=Service)


class ServiceLookup:
    """The services of one master."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self._made: dict[type[Service], Any] = {}

    def __getitem__(self, wanted: type[S]) -> S:
        found = self._made.get(wanted)
        if found is None:
            found = self._made[wanted] = wanted.made_for(self)
        made: S = found
        return made

    def keep(self, *services: Service) -> None:
        """Keep services that need what only the caller has."""
        self._made.update({type(service): service for service in services})
