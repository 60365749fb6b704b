"""Seeds that found a bug, with one line why; they run in every CI, beside the ranges.

Whoever changes a world or its faults gives each seed another course, so hardly any of these is the one any more that
found its bug. They stay as what has to be thought of, and as seeds like others; bugs in the code as it is are planted
(`mutants/`).
"""

from __future__ import annotations

NAMED: dict[int, str] = {
    25: "the master's clock jumped past the life of all task tokens: every launcher was refused for ever",
    5042: "of the simulation itself: a power cut ended one master of two on the same machine, the other wrote on",
}
"""seed -> the bug it found, in the world of a search"""
NAMED_CLUSTERS: dict[int, str] = {
    23: "a preempted trial's node was drained: the preemption was forgotten, and the trial preempted once too often",
    45: "of the simulation itself: a command without slots was held to a quota that had become narrower meanwhile",
    415: "of the simulation itself: what it saw first after a torn commit and a clock put back had begun earlier",
    999: "one left for a command that could not start: a place that it could have had was kept for another one",
    1715: "of the simulation itself: a power cut tore what SQLite had put from its journal into the database already",
    2758: "a node's clock was put back: its launchers delivered nothing, and their tokens ended",
}
"""The same in the world of a shared cluster."""
NAMED_ELASTIC: dict[int, str] = {
    342: "the master's clock was put back: an instance that never came counted until it was as late again",
    1918: "the same of a launch without an answer: its order was of a later time, and its agent listed until then",
    1694: "an agent was silent for seconds, and an older list came: its instance, listed before, was taken for gone",
    1734: "the master's clock was put back: a listed instance without an agent stayed until it was as late again",
}
"""The same in the world of an elastic pool."""
