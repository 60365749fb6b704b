"""Rules of alerts: which rules look at an experiment, what a value means to them, and the texts that are sent.

Pure: rows are read, alerts written and messages sent elsewhere.
"""

from __future__ import annotations

from detlab_hub.core.alerts.index import AlertRule, AlertSubject, RuleIndex, RuleScope
from detlab_hub.core.alerts.judging import RuleMark, RuleVerdict, judge

__all__ = ["AlertRule", "AlertSubject", "RuleIndex", "RuleMark", "RuleScope", "RuleVerdict", "judge"]
