"""The master's log quotes its callers."""

import logging

from detlab_hub.app import OneLine


def test_a_caller_cannot_forge_a_line_or_move_the_operators_cursor():
    said = "there is no checkpoint \x1b[2J\x9b1m\r\n2026-01-01 ERROR detlab: forged\x00 für Ünal 🙂"
    record = logging.LogRecord("detlab.web", logging.INFO, __file__, 1, "GET x: %s", (said,), None)
    line = OneLine("%(levelname)s %(message)s").format(record)
    assert line.isprintable()
    assert line == (
        "INFO GET x: there is no checkpoint \\x1b[2J\\x9b1m\\r\\n2026-01-01 ERROR detlab: forged\\x00 für Ünal 🙂"
    )
