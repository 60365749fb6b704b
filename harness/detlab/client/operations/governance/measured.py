"""Operations on what is measured of governed trials and is no single number."""

from __future__ import annotations

from typing import Any

from detlab.client.transport.calls import Call, Flow, plain

DEPTH, SHARE = "gov/depth", "gov/share"


def measured(trial_id: int) -> Flow[dict[str, Any]]:
    """Fetch the newest `gov/depth` and `gov/share` of a trial's validations by name, as far as it has reported them.

    Each is `{steps_completed, value}`. They are the trial's own word: values may have any form.
    """
    found: dict[str, Any] = {}
    for name in (DEPTH, SHARE):
        params: dict[str, str | int | float | None] = {"group": "validation", "name": name, "limit": 1}
        page = yield Call("GET", f"trials/{int(trial_id)}/values", params=params, parse=plain)
        items = page.get("items") if isinstance(page, dict) else None
        for one in (one for one in items or () if one["name"] == name):
            found[name] = {"steps_completed": one["steps_completed"], "value": one["value"]}
    return found
