"""The options of sbatch that a user's config may give, each with the values that it takes.

sbatch parses its words as GNU programs do: it takes abbreviations (`--wra=`), clusters of short options (`-vJx`), and
the first word that is no option as its script. Hence nothing of a user's text is passed on: an item is parsed here into
a name of `OPTIONS` and a value that fits, and `SbatchOption.render` writes the whole of it. What could make the job
another user's, run something else, read or write a file where the agent is, or lead away from where the agent looks
for it, is not in the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

MOST_CHARS = 1000
"""Characters of one option."""
_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}"
_NODES = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]|\[[0-9,-]+\]|,(?=[A-Za-z0-9])){0,500}"
_FEATURE = r"[A-Za-z0-9_][A-Za-z0-9_.:=%+-]*(?:\*\d{1,6})?"


@dataclass(frozen=True)
class ValueKind:
    """What the values of some options look like.

    Attributes:
        words: For people.
        pattern: The whole value matches it.
    """

    words: str
    pattern: str

    def fits(self, value: str) -> bool:
        """Whether it is such a value."""
        return re.fullmatch(self.pattern, value, re.ASCII) is not None


def _list(one: str, most: int = 20, between: str = ",") -> str:
    """Return the pattern of one to `most` of what a pattern matches, with commas."""
    return rf"(?:{one})(?:{between}(?:{one})){{0,{most - 1}}}"


def _some(words: str, *, many: bool = False) -> ValueKind:
    """Return the kind of values that are one of these words; several of them with commas if `many`."""
    named, one = ", ".join(words.split()), f"(?i:{'|'.join(words.split())})"
    return ValueKind(f"some of {named}", _list(one, 12)) if many else ValueKind(f"one of {named}", one)


FLAG = ValueKind("no value", "")
COUNT = ValueKind("a number", r"[1-9]\d{0,6}")
SIZE = ValueKind("a size, such as 40G", r"\d{1,12}(?:[KMGTkmgt][Bb]?)?")
MINUTES = ValueKind("minutes, or [D-]HH:MM:SS", r"(?:(?:\d{1,4}-)?\d{1,6}(?::\d{1,2}){0,2}|(?i:unlimited|infinite))")
MOMENT = ValueKind(
    "a time, such as 18:00, 2026-12-24T08:00 or now+1hour",
    r"now(?:\+\d{1,6}(?:seconds?|minutes?|hours?|days?|weeks?)?)?|today|tomorrow|midnight|noon"
    r"|\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d)?)?|\d\d:\d\d(?::\d\d)?",
)
ONE_NAME = ValueKind("a name", _NAME)
NAMES = ValueKind("a name, or several with commas", _list(_NAME))
NODES = ValueKind("names of nodes, such as n1,n[4-7]", _NODES)
FEATURES = ValueKind(
    "features, such as a100, a100&nvlink or [rack1|rack2]", _list(rf"[\[(]*{_FEATURE}[\])]*", between="[&|,]")
)
GPUS = ValueKind("[TYPE:]COUNT, as many as each node has slots", rf"(?:{_NAME}:)?[1-9]\d{{0,3}}")
_SPEED = r"(?:\d{1,8}|low|medium|high|highm1)"
_NO_GPU = r"(?!(?i:gpu|mps|shard|gres)(?![a-z0-9_]))[a-z][a-z0-9_]{0,40}"  # Slurm reads gres:gpu:8 as gpu:8

OPTIONS: dict[str, ValueKind] = {
    "account": ONE_NAME,
    "acctg-freq": ValueKind(
        "seconds, or such as task=30", r"\d{1,6}|" + _list(r"(?:task|energy|network|filesystem)=\d{1,6}", 4)
    ),
    "begin": MOMENT,
    "constraint": FEATURES,
    "contiguous": FLAG,
    "core-spec": COUNT,
    "cores-per-socket": COUNT,
    "cpu-freq": ValueKind("kHz, low, medium, high or highm1", rf"{_SPEED}(?:-{_SPEED})?(?::[A-Za-z]{{2,20}})?"),
    "cpus-per-gpu": COUNT,
    "cpus-per-task": COUNT,
    "delay-boot": COUNT,
    "distribution": ValueKind(
        "such as block:cyclic",
        r"(?:block|cyclic|plane=\d{1,5}|\*)(?::(?:block|cyclic|fcyclic|\*)){0,2}(?:,(?:No)?Pack)?",
    ),
    "exclude": NODES,
    "exclusive": ValueKind("no value, user or mcs", "|user|mcs"),
    "extra-node-info": ValueKind("S[:C[:T]]", r"(?:\d{1,4}|\*)(?::(?:\d{1,4}|\*)){0,2}"),
    "gpu-bind": ValueKind("such as closest or single:1", r"(?:verbose,)?(?:closest|none|(?:single|per_task):\d{1,4})"),
    "gpu-freq": ValueKind("such as medium or high,memory=low", rf"{_SPEED}(?:,memory={_SPEED})?|memory={_SPEED}"),
    "gpus-per-node": GPUS,
    "gpus-per-task": GPUS,
    "gres": ValueKind(
        "NAME[:TYPE][:COUNT] of what is no GPU (slurm.gpu_type and resources say those)",
        _list(rf"{_NO_GPU}(?::{_NAME}){{0,2}}", 10),
    ),
    "gres-flags": _some("disable-binding enforce-binding multiple-tasks-per-sharing one-task-per-sharing"),
    "hint": _some("compute_bound memory_bound multithread nomultithread"),
    "licenses": ValueKind(
        "NAME[@SERVER][:COUNT], …", _list(rf"{_NAME}(?:@{_NAME})?(?::\d{{1,6}})?", 10, between="[,|]")
    ),
    "mail-type": _some(
        "NONE BEGIN END FAIL REQUEUE ALL INVALID_DEPEND STAGE_OUT TIME_LIMIT TIME_LIMIT_90 TIME_LIMIT_80 TIME_LIMIT_50"
        " ARRAY_TASKS",
        many=True,
    ),
    "mail-user": ValueKind("an address", r"[A-Za-z0-9][A-Za-z0-9._%+-]{0,63}(?:@[A-Za-z0-9][A-Za-z0-9.-]{0,200})?"),
    "mem": SIZE,
    "mem-bind": _some("none local sort prefer verbose quiet", many=True),
    "mem-per-cpu": SIZE,
    "mem-per-gpu": SIZE,
    "mincpus": COUNT,
    "network": ValueKind("such as ib,instances=2", _list(r"[A-Za-z0-9_]{1,40}(?:=[A-Za-z0-9_]{1,40})?", 10)),
    "nice": ValueKind("no value, or a number of at least 0", r"|\d{1,9}"),
    "nodelist": NODES,
    "oversubscribe": FLAG,
    "partition": NAMES,
    "prefer": FEATURES,
    "profile": _some("none all energy task filesystem lustre network", many=True),
    "qos": ONE_NAME,
    "reservation": NAMES,
    "sockets-per-node": COUNT,
    "spread-job": FLAG,
    "switches": ValueKind("COUNT[@TIME]", rf"\d{{1,5}}(?:@{MINUTES.pattern})?"),
    "thread-spec": COUNT,
    "threads-per-core": COUNT,
    "time": MINUTES,
    "time-min": MINUTES,
    "tmp": SIZE,
    "wckey": ONE_NAME,
}
"""What a config may give; the names are sbatch's own, in full."""
_SHORT = {
    "A": "account", "b": "begin", "C": "constraint", "S": "core-spec", "c": "cpus-per-task", "m": "distribution",
    "x": "exclude", "B": "extra-node-info", "L": "licenses", "w": "nodelist", "s": "oversubscribe", "p": "partition",
    "q": "qos", "t": "time",
}  # fmt: skip
_BY_ITSELF = "detlab gives it itself"
_GPUS = "resources.slots_per_trial says how many GPUs, slurm.gpu_type which"
_VARIABLES = "set variables with environment.environment_variables or slurm.setup"
_LAUNCHERS = "detlab starts one launcher on each node"
ELSEWHERE = {
    "array": "a search's trials are jobs of their own; --slurm-array-size of the agent puts them into arrays",
    "chdir": "detlab unpacks the code and sets the working directory",
    "clusters": "an agent works with one cluster: its pool says which",
    "comment": _BY_ITSELF,
    "deadline": "slurm.time limits a job",
    "dependency": _BY_ITSELF,
    "error": _BY_ITSELF,
    "export": _VARIABLES,
    "export-file": _VARIABLES,
    "get-user-env": _VARIABLES,
    "gid": "a job runs as its owner",
    "gpus": _GPUS,
    "gpus-per-socket": _GPUS,
    "hold": "pause the experiment instead",
    "input": _BY_ITSELF,
    "job-name": _BY_ITSELF,
    "kill-on-invalid-dep": _BY_ITSELF,
    "no-requeue": _BY_ITSELF,
    "nodefile": "name the nodes: --nodelist=n1,n2",
    "nodes": "slurm.slots_per_node and resources.slots_per_trial say on how many nodes it runs",
    "ntasks": _LAUNCHERS,
    "ntasks-per-core": _LAUNCHERS,
    "ntasks-per-gpu": _LAUNCHERS,
    "ntasks-per-node": _LAUNCHERS,
    "ntasks-per-socket": _LAUNCHERS,
    "output": _BY_ITSELF,
    "parsable": _BY_ITSELF,
    "priority": "resources.priority orders experiments; --nice=N gives way to other jobs",
    "requeue": "a trial goes on in a new job by itself",
    "signal": "slurm.leave_seconds says how long before the time limit a trial is asked to save",
    "test-only": "what Slurm refuses is on the trial's card",
    "uid": "a job runs as its owner",
    "wait": _BY_ITSELF,
    "wrap": "the entrypoint says what runs",
}
"""What is said instead of options that are not in the table."""


@dataclass(frozen=True, order=True)
class SbatchOption:
    """An option of `OPTIONS` with its value; "" for none."""

    name: str
    value: str = ""

    def render(self) -> str:
        """Return it as a word for sbatch."""
        return f"--{self.name}={self.value}" if self.value else f"--{self.name}"


class SbatchNotAllowed(ValueError):
    """An item that is not passed on.

    Attributes:
        message: What is wrong with it.
        hint: What to write instead.
    """

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"{message}; {hint}")
        self.message, self.hint = message, hint


def parse_sbatch(text: str) -> SbatchOption:
    """Read one item of `slurm.sbatch_args`: `--option` or `--option=value`.

    Raises:
        SbatchNotAllowed: It is something else, no option of the table, or its value does not fit.
    """
    shown = repr(text if len(text) <= 60 else f"{text[:60]}…")
    if len(text) > MOST_CHARS or not text.isprintable() or not text.isascii():
        raise SbatchNotAllowed(
            f"{shown} is longer than {MOST_CHARS} characters, or has some that are not plain text", _WRITE
        )
    if not text.startswith("--"):
        raise _of_other_form(text, shown)
    name, equals, value = text[2:].partition("=")
    if name not in OPTIONS:
        raise _unknown(name, shown)
    if equals and not value:
        raise SbatchNotAllowed(f"--{name}= has no value after the =", f"it takes {OPTIONS[name].words}")
    return option_of(name, value)


def option_of(name: str, value: str) -> SbatchOption:
    """Return an option of the table with a value.

    Raises:
        SbatchNotAllowed: It is no such option, or takes no such value.
    """
    kind = OPTIONS.get(name)
    if kind is None:
        raise _unknown(name, repr(name[:60]))
    if not (value.isascii() and kind.fits(value)):
        said = f"the value of --{name} is {value[:60]!r}" if value else f"--{name} has no value"
        raise SbatchNotAllowed(said, f"it takes {kind.words}, in the same item: {_example(name, kind)}")
    return SbatchOption(name, value)


_WRITE = 'write each as one item, "--option=value"'


def _example(name: str, kind: ValueKind) -> str:
    return f'"--{name}"' if kind is FLAG else f'"--{name}=VALUE"'


def _of_other_form(text: str, shown: str) -> SbatchNotAllowed:
    if text.startswith("-"):
        whole = _SHORT.get(text[1:2])
        meant = f'write the whole name, "--{whole}=VALUE"' if whole else _WRITE
        return SbatchNotAllowed(f"{shown} is a short option, of which sbatch reads several in one word", meant)
    return SbatchNotAllowed(f"{shown} is no option: sbatch would take it for the job's script", _WRITE)


def _unknown(name: str, shown: str) -> SbatchNotAllowed:
    if name in ELSEWHERE:
        return SbatchNotAllowed(f"--{name} cannot be given", ELSEWHERE[name])
    whole = sorted(one for one in (*OPTIONS, *ELSEWHERE) if name and one.startswith(name))[:3]
    means = f"sbatch would read it as --{' or --'.join(whole)}: write whole names; " if whole else ""
    return SbatchNotAllowed(f"{shown} is no option that can be given", f"{means}allowed are --{', --'.join(OPTIONS)}")


def parse_all(items: Iterable[str]) -> tuple[SbatchOption, ...]:
    """Read all items of `slurm.sbatch_args`.

    Raises:
        SbatchNotAllowed: The first that is not allowed.
    """
    return tuple(map(parse_sbatch, items))
