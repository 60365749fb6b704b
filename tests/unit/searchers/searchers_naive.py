"""Search methods written to be obviously right, to compare the real ones with.

A model keeps only what happened, as lists that are never changed but at their end. Whatever else it wants to know
(who is in which rung, who still runs, what is left of the budget) it counts anew from these lists each time. Trials are
numbered in the order of their creation; nothing is drawn at random here.
"""

import itertools
import math
from fractions import Fraction

INVALID = ("invalid_hp", "init_invalid_hp")
WORST = 1.7976931348623157e308


def is_before(one, other):
    """Whether a result is strictly better than another: smaller, and any number before NaN and -inf."""
    if has_diverged(one):
        return False
    return has_diverged(other) or one < other


def has_diverged(result):
    """Whether a result says only that the training went wrong."""
    return math.isnan(result) or result == -math.inf


class NaiveSearch:
    """What all have in common: who was created, who ended and how."""

    def __init__(self):
        self.created = []
        self.early = []
        """(trial, reason)"""
        self.closed = []

    def create(self):
        trial = len(self.created)
        self.created.append(trial)
        return [("create", trial)]

    def invalid(self):
        return [trial for trial, reason in self.early if reason in INVALID]

    def ended_early(self, trial):
        return trial in [other for other, _ in self.early]

    def shutdown(self):
        if len(self.closed) < len(self.created):
            return []
        canceled = [trial for trial, reason in self.early if reason == "user_canceled"]
        failed = [trial for trial, reason in self.early if reason == "errored"]
        everybody = len(self.created)
        return [("shutdown", len(canceled) >= everybody, len(failed) >= everybody)]

    def report(self, trial, metric, time):
        return [] if trial in self.closed else self.on_report(trial, metric, time)

    def exit_early(self, trial, reason):
        if trial in self.closed or self.ended_early(trial):
            return []
        said = self.on_early(trial, reason)
        self.early.append((trial, reason))
        return said + self.after_early(trial, reason)

    def exit(self, trial):
        if trial in self.closed:
            return []
        self.closed.append(trial)
        return self.on_exit(trial) + self.shutdown()

    def on_report(self, trial, metric, time):
        return []

    def on_early(self, trial, reason):
        return []

    def after_early(self, trial, reason):
        return []

    def on_exit(self, trial):
        return []


class NaiveRandom(NaiveSearch):
    def __init__(self, max_trials, max_concurrent, replaces=True):
        super().__init__()
        self.max_trials, self.max_concurrent, self.replaces = max_trials, max_concurrent, replaces

    def start(self):
        first = self.max_trials if self.max_concurrent == 0 else min(self.max_trials, self.max_concurrent)
        return [decision for _ in range(first) for decision in self.create()]

    def on_exit(self, trial):
        replaced = len(self.invalid()) if self.replaces else 0
        return self.create() if len(self.created) - replaced < self.max_trials else []

    def state(self):
        replaced = len(self.invalid()) if self.replaces else 0
        return {"budget_used": len(self.created) - replaced, "waiting": []}


class NaiveGrid(NaiveSearch):
    """`axes` are (name, values) in sorted order; the last name changes fastest, and the last point comes first."""

    def __init__(self, axes, max_concurrent):
        super().__init__()
        names = [name for name, _ in axes]
        self.points = [
            dict(zip(names, values, strict=True)) for values in itertools.product(*[values for _, values in axes])
        ][::-1]
        self.max_concurrent = max_concurrent

    def start(self):
        first = len(self.points) if self.max_concurrent == 0 else min(len(self.points), self.max_concurrent)
        return [decision for _ in range(first) for decision in self.create()]

    def on_exit(self, trial):
        return self.create() if len(self.created) < len(self.points) else []

    def state(self):
        return {"remaining": len(self.points) - len(self.created), "waiting": []}


class NaiveHalving(NaiveSearch):
    """One bracket. A result is (trial, rung, score, what became of the trial: "passes", "stops" or "exited")."""

    def __init__(self, num_rungs, max_trials, divisor, max_concurrent, max_time, smaller_is_better):
        super().__init__()
        self.units = [max(1, math.floor(max_time / divisor ** (num_rungs - 1 - i))) for i in range(num_rungs)]
        self.max_trials, self.divisor, self.smaller_is_better = max_trials, divisor, smaller_is_better
        fills_the_top = max(1, int(divisor ** (num_rungs - 1)))
        self.places = min(max_concurrent if max_concurrent > 0 else fills_the_top, max_trials)
        self.results = []

    def start(self):
        return [decision for _ in range(self.places) for decision in self.create()]

    def level(self, trial):
        passed = [rung for other, rung, _, fate in self.results if other == trial and fate == "passes"]
        return len(passed)

    def in_rung(self, rung):
        """(trial, score) of each that counts in a rung, in the order in which they came."""
        invalid = self.invalid()
        return [(trial, score) for trial, at, score, _ in self.results if at == rung and trial not in invalid]

    def stopped(self):
        return [trial for trial, _, _, fate in self.results if fate == "stops"]

    def active(self):
        stopped = self.stopped()
        return [
            trial
            for trial in self.created
            if trial not in stopped and not self.ended_early(trial) and trial not in self.closed
        ]

    def fill(self):
        budget_left = self.max_trials - (len(self.created) - len(self.invalid()))
        return self.create() if budget_left > 0 and len(self.active()) < self.places else []

    def on_report(self, trial, metric, time):
        if trial not in self.active():
            return []
        if time is None or not math.isfinite(time):
            return ["refused"]
        score = metric if self.smaller_is_better else -metric
        while int(time) >= self.units[self.level(trial)]:
            rung = self.level(trial)
            others = [other for _, other in self.in_rung(rung)]
            better = [other for other in others if is_before(other, score)]
            keep = max(int((len(others) + 1) / self.divisor), 1)
            top = rung == len(self.units) - 1
            if top or len(better) >= keep:
                self.results.append((trial, rung, score, "stops"))
                return [("stop", trial, top), *self.fill()]
            self.results.append((trial, rung, score, "passes"))
        return []

    def on_early(self, trial, reason):
        if trial not in self.active():
            return []
        if reason in INVALID:
            return [("stop", trial, False)]
        self.results.append((trial, self.level(trial), WORST, "exited"))
        return []

    def after_early(self, trial, reason):
        return self.fill()

    def order(self, rung):
        """Who is in a rung, best first; of equal ones the last that came is first."""
        placed = []
        for trial, score in self.in_rung(rung):
            place = len([other for _, other in placed if is_before(other, score)])
            placed.insert(place, (trial, score))
        return placed

    def progress(self):
        reached = len(self.in_rung(0))
        progress = reached / (1.2 * self.max_trials)
        if reached == self.max_trials:
            progress = max(progress, (len(self.closed) - len(self.invalid())) / self.max_trials)
        return progress

    def state(self):
        return {
            "rungs": [(units, self.order(rung)) for rung, units in enumerate(self.units)],
            "level": {trial: self.level(trial) for trial in self.created},
            "active": sorted(self.active()),
            "exited": len(self.closed),
            "invalid": len(self.invalid()),
            "lifted": {},
        }


def naive_brackets(config):
    """(rungs, trials, places) of each bracket of `adaptive_asha`, most rungs first."""
    divisor, max_trials = config["divisor"], config["max_trials"]
    rungs = config.get("bracket_rungs") or []
    if not rungs:
        ends = min(config["max_time"], max_trials)
        most = min(config["max_rungs"], len([n for n in range(64) if Fraction(str(divisor)) ** n <= ends]))
        fewest = {"conservative": 1, "standard": (most - 1) // 2 + 1, "aggressive": most}[config["mode"]]
        rungs = range(fewest, most + 1)
    rungs = sorted(rungs, reverse=True)
    weights = [Fraction(str(divisor)) ** (n - 1) / n for n in rungs]
    trials = [max(int(weight / sum(weights) * max_trials), 1) for weight in weights]
    if sum(trials) < max_trials:
        trials[0] += max_trials - sum(trials)
    if config["max_concurrent_trials"] == 0:
        places = [max(trials[-1], int(divisor)) for _ in rungs]
    else:
        together = max(config["max_concurrent_trials"], len(rungs))
        places = [len([p for p in range(together) if p % len(rungs) == i]) for i in range(len(rungs))]
    return list(zip(rungs, trials, places, strict=True))


class NaiveTournament(NaiveSearch):
    """Brackets side by side; each knows its trials by numbers of its own."""

    def __init__(self, config):
        super().__init__()
        self.brackets = [
            NaiveHalving(n, trials, config["divisor"], places, config["max_time"], config["smaller_is_better"])
            for n, trials, places in naive_brackets(config)
        ]
        self.home = []
        """Of each trial: (bracket, number there)."""

    def translate(self, bracket, decisions):
        said = []
        for decision in decisions:
            match decision:
                case ("create", number):
                    self.home.append((bracket, number))
                    said += self.create()
                case ("stop", number, finished):
                    said.append(("stop", self.home.index((bracket, number)), finished))
                case "refused":
                    said.append("refused")
                case _:
                    pass  # a bracket's own shutdown
        return said

    def start(self):
        return [
            decision
            for number, bracket in enumerate(self.brackets)
            for decision in self.translate(number, bracket.start())
        ]

    def on_report(self, trial, metric, time):
        bracket, number = self.home[trial]
        return self.translate(bracket, self.brackets[bracket].report(number, metric, time))

    def on_early(self, trial, reason):
        bracket, number = self.home[trial]
        return self.translate(bracket, self.brackets[bracket].exit_early(number, reason))

    def on_exit(self, trial):
        bracket, number = self.home[trial]
        return self.translate(bracket, self.brackets[bracket].exit(number))

    def progress(self):
        return sum(bracket.progress() for bracket in self.brackets) / len(self.brackets)

    def state(self):
        return {
            "brackets": [self.named(number, bracket.state()) for number, bracket in enumerate(self.brackets)],
            "bracket_of": {trial: bracket for trial, (bracket, _) in enumerate(self.home)},
        }

    def named(self, bracket, state):
        """A bracket's state with the numbers that trials have in the whole search."""
        whole = {number: trial for trial, (home, number) in enumerate(self.home) if home == bracket}
        return {
            **state,
            "rungs": [(units, [(whole[t], score) for t, score in order]) for units, order in state["rungs"]],
            "level": {whole[trial]: level for trial, level in state["level"].items()},
            "active": sorted(whole[trial] for trial in state["active"]),
        }


def make_naive(config, axes):
    """The model of a `searcher` block; `axes` for a grid."""
    match config["name"]:
        case "single":
            return NaiveRandom(1, 1, replaces=False)
        case "random":
            return NaiveRandom(config["max_trials"], config["max_concurrent_trials"])
        case "grid":
            return NaiveGrid(axes, config["max_concurrent_trials"])
        case "async_halving":
            return NaiveHalving(
                config["num_rungs"],
                config["max_trials"],
                config["divisor"],
                config["max_concurrent_trials"],
                config["max_time"],
                config["smaller_is_better"],
            )
        case _:
            return NaiveTournament(config)
