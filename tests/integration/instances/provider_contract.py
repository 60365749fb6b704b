"""What holds for every provider of instances: a test class to inherit from."""

from __future__ import annotations

import secrets
import time

from detlab_hub.backends.instances import InstanceOrder, Provider
from detlab_hub.core.provisioning import InstanceState
from testbed.waiting import until

ALIVE = {InstanceState.PENDING, InstanceState.RUNNING}


def order(name: str, pool: str = "elastic") -> InstanceOrder:
    return InstanceOrder(name, pool, time.time(), f"dtenrol_{secrets.token_urlsafe(32)}")


def living(provider: Provider) -> dict[str, str]:
    """Ids of what is alive, by agent."""
    return {i.agent_id: i.id for i in provider.list() if i.state in ALIVE}


class ProviderContract:
    """Inherit, and define the fixtures `provider` and `another`: the same place, as a later master finds it."""

    def test_what_is_launched_is_listed_once_and_goes_when_it_is_ended(self, provider: Provider) -> None:
        assert not provider.list()
        before = time.time()
        made = provider.launch(order("one-1"))
        assert made.agent_id == "one-1"
        assert abs(made.launched_at - before) < 60
        provider.launch(order("one-2"))
        until(lambda: set(living(provider)) == {"one-1", "one-2"}, lambda: str(provider.list()), 30)
        assert living(provider)["one-1"] == made.id
        provider.terminate([made.id])
        until(lambda: set(living(provider)) == {"one-2"}, lambda: str(provider.list()), 30)

    def test_the_same_order_twice_makes_one(self, provider: Provider, another: Provider) -> None:
        wanted = order("twice")
        first = provider.launch(wanted)
        assert another.launch(wanted).id == first.id
        assert [i.id for i in provider.list()] == [first.id]

    def test_a_later_master_finds_and_ends_what_an_earlier_one_made(
        self, provider: Provider, another: Provider
    ) -> None:
        made = provider.launch(order("kept"))
        assert living(another) == {"kept": made.id}
        another.terminate([made.id])
        until(lambda: not living(provider), lambda: str(provider.list()), 30)

    def test_what_is_not_there_is_left_alone(self, provider: Provider) -> None:
        made = provider.launch(order("here"))
        provider.terminate(["i-0123456789abcdef0", "../here", ""])
        assert living(provider) == {"here": made.id}

    def test_the_enrolment_token_is_in_no_command_line_and_in_no_text_about_the_order(self, provider: Provider) -> None:
        wanted = order("silent")
        made = provider.launch(wanted)
        assert wanted.enrolment_token not in repr(wanted)
        assert wanted.enrolment_token not in repr(made)
