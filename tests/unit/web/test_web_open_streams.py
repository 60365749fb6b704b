"""How many streams a user may have open, and whom that does not bind."""

from __future__ import annotations

import pytest

from detlab_hub.services.base.limits.model import PerUserLimits
from detlab_hub.services.base.limits.reached import TooMany
from detlab_hub.web.openstreams import Streams


def test_exempt_users_and_groups_may_have_any_number_of_streams() -> None:
    streams = Streams(PerUserLimits(open_streams=1, exempt_users={"ada"}, exempt_groups={"robots"}))
    for _ in range(3):
        streams.account_of("ada")
        streams.account_of("r2", frozenset({"robots"}))
    account = streams.account_of("ben", frozenset({"others"}))
    with pytest.raises(TooMany, match="a user may have 1"):
        streams.account_of("ben", frozenset({"others"}))
    streams.leave("ben", account)
    streams.account_of("ben", frozenset({"others"}))
