"""What the README says of what there is: names from the registries, and what is not there yet by asking for it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from reference_pages.markdown import table
from reference_pages.plugins import ROOT

START = "<!-- Made by `python docs/generate.py` from what is registered; do not edit up to the end mark. -->"
END = "<!-- end of what is made -->"
HOW = "docs/how-to"
RUNTIMES = {
    "process": "processes",
    "docker": f"[containers of a Docker engine]({HOW}/docker-agents.md)",
    "kubernetes": f"[pods of Kubernetes]({HOW}/kubernetes.md)",
    "slurm": f"[jobs of Slurm]({HOW}/slurm.md)",
}
STORAGES = {
    "shared_fs": "directories that all nodes see",
    "directory": "directories of the node",
    "s3": f"[S3]({HOW}/keep-checkpoints-in-object-stores.md)",
    "gcs": "Google Cloud Storage",
    "azure": "Azure",
    "fsspec": "what fsspec reaches",
}
SPAWNERS = {"detlab": "processes of the queue", "detlab-docker": "containers", "detlab-kube": "pods"}


@dataclass(frozen=True)
class Absent:
    """What a reader may look for in vain, and how to see that it is still so.

    Attributes:
        text: What is not there, as the README says it.
        exists: Whether it is there by now: then the line has to go.
    """

    text: str
    exists: Callable[[], bool]


def _accepted(key: str, config: Mapping[str, object]) -> bool:
    """Whether the master takes a key of a config without an error or a warning of it."""
    from detlab.schemas.expconf.checks.check import parse
    from detlab.schemas.expconf.checks.unsupported import unsupported_keys

    return not any(problem.path.startswith(key) for problem in unsupported_keys(parse(config)))


def _strategy(name: str) -> bool:
    from detlab.pytorch.parallel.strategy import STRATEGIES

    return name in STRATEGIES.names()


def _launches(module: str) -> bool:
    return _accepted("entrypoint", {"entrypoint": f"python3 -m detlab.launch.{module} train.py"})


NOT_YET = (
    Absent("Horovod", lambda: _launches("horovod")),
    Absent("FSDP", lambda: _strategy("fsdp")),
    Absent(
        "limits of processors for processes "
        "([what is not protected](docs/explanation/security.md#what-is-not-protected-yet))",
        lambda: _accepted("resources.cpus", {"resources": {"cpus": 1}}),
    ),
)


def what_works() -> str:
    """Return the part of the README between its two marks."""
    rows = [
        ("tasks run as", _said(_names("detlab.runtimes"), RUNTIMES)),
        ("search methods", f"{_code(_names('detlab.searchers'))}: [which to choose](docs/explanation/searchers.md)"),
        ("stopping policies", f"{_code(_names('detlab.stopping'))}: [how]({HOW}/stop-trials-and-weigh-metrics.md)"),
        ("checkpoints lie in", _said(_names("detlab.storages"), STORAGES)),
        ("strategies of the trainer", _code(_names("detlab.strategies"))),
        (
            "other frameworks",
            f"[Hugging Face's Trainer, Lightning, Keras, and any by the Core API]({HOW}/use-your-framework.md)",
        ),
        ("notebook servers run as", _said(_names("jupyterhub.spawners"), SPAWNERS)),
        ("configs come from", ", ".join([f"[Determined]({HOW}/come-from-determined.md)", *_imports()])),
        ("magics", _linked("magics", _magics())),
        ("commands of `det`", _linked("cli", _commands())),
    ]
    missing = ", ".join(absent.text for absent in NOT_YET)
    return "\n".join([START, "", table(("what", "which"), rows), "", f"Not yet: {missing}.", "", END])


def readme() -> str:
    """Return the README with this part renewed."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"README.md has lost one of its marks: {START} and {END}")
    return before + what_works() + after


def _names(group: str) -> list[str]:
    """The names of detlab's own entry points of a group, in the order of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return list(project["entry-points"][group])


def _said(names: Iterable[str], words: Mapping[str, str]) -> str:
    """The words for these names, in the words' order; a name without words stands for itself."""
    found = set(names)
    return ", ".join(
        [text for name, text in words.items() if name in found] + [f"`{name}`" for name in sorted(found - set(words))]
    )


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _linked(page: str, names: Iterable[str]) -> str:
    return f"{_code(names)}: [reference](docs/reference/{page}.md)"


def _imports() -> list[str]:
    from detlab.schemas.imports import kinds

    pages = {"katib": "come-from-katib", "wandb": "come-from-wandb-sweeps"}
    return [
        f"[{kind.title}]({HOW}/{pages[name]}.md)" if name in pages else kind.title for name, kind in kinds().items()
    ]


def _magics() -> list[str]:
    from detlab_magics.magics import magic_table

    return [name for name, _ in magic_table()]


def _commands() -> list[str]:
    from detlab.cli.root import COMMANDS

    return sorted(COMMANDS)
