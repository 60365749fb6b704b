"""The pages of the Core API and the Python client."""

from __future__ import annotations

from reference_pages.docstrings import (
    class_section,
    doc_of,
    fields_section,
    first_sentence,
    function_section,
    signature,
)
from reference_pages.markdown import page, table


def core_api() -> str:
    """The page of the Core API, from signatures and docstrings."""
    from detlab import InvalidHP, core, info

    intro = """
`import detlab as det`. The names and signatures are those of Determined 0.38; what is there in detlab only has a
default and comes after them. [Five staged examples](../../examples/core_api/README.md) show them at work.

Off-cluster the same script runs: reports are logged, checkpoints go to a folder of the user, nothing is ever
preempted, and `det.get_cluster_info()` is None. What the profiler says of GPUs is
[not tried on a GPU](../contributing/try-on-a-gpu.md).
"""
    members = [
        ("core_context.train", core.TrainContext),
        ("core_context.checkpoint", core.CheckpointContext),
        ("core_context.preempt", core.PreemptContext),
        ("core_context.distributed", core.DistributedContext),
        ("core_context.searcher", core.SearcherContext),
        ("core_context.artifacts", core.ArtifactContext),
        ("core_context.experimental", core.ExperimentalCoreContext),
    ]
    enums = [
        core.DownloadMode,
        core.EarlyExitReason,
        core.PreemptMode,
        core.SearcherMode,
        core.TensorboardMode,
        core.Unit,
    ]
    return page(
        "Core API",
        intro,
        function_section("det.core.init", core.init),
        class_section("core_context", core.Context),
        *(class_section(name, cls) for name, cls in members),
        class_section("core_context.profiler", core.ProfilerContext)
        + "\n\n"
        + "\n\n".join(_rest(core.ProfilerContext)),
        class_section("det.core.SearcherOperation", core.SearcherOperation),
        function_section("det.get_cluster_info", info.get_cluster_info),
        fields_section("det.ClusterInfo", info.ClusterInfo),
        fields_section("det.TrialInfo", info.TrialInfo),
        _media(),
        f"## det.InvalidHP\n\n{doc_of(InvalidHP)}",
        "## Choices\n\n"
        + table(
            ("", "values"), [(f"`det.core.{e.__name__}`", ", ".join(f"`{m}`" for m in e.__members__)) for e in enums]
        ),
    )


def _media() -> str:
    """The types of what a run logs beyond numbers, with what each takes."""
    from detlab import media

    types = [getattr(media, name) for name in media.__all__ if _derives(getattr(media, name), media.Media)]
    rows = [(f"`det.{cls.__name__}{signature(cls.__init__)}`", first_sentence(cls.__doc__)) for cls in types]
    how = "[What each takes, and where it is shown](../how-to/log-images-and-tables.md)."
    return f"## Media\n\nFor `core_context.train.report_media`. {how}\n\n" + table(("type", ""), rows)


def _derives(value: object, base: type) -> bool:
    """Whether a value is a class derived from another one, and not that one."""
    return isinstance(value, type) and issubclass(value, base) and value is not base


def _rest(cls: type) -> list[str]:
    """The paragraphs of a class's docstring after the first, which its section begins with."""
    return doc_of(cls).split("\n\n")[1:]


def client() -> str:
    """The page of the Python client."""
    from detlab import client as sdk
    from detlab import experiment, remote_functions, viz

    intro = """
What commands and magics do, as Python: `from detlab.client import Client`. Without arguments a client finds the cluster
as `det` does (`DET_URL` and `DET_TOKEN`, the folder `.detlab` here or above, the cluster started last, `det login`).
The cluster started last is a guess: it is read, and a call that would change it raises `ClusterGuessed`.
`AsyncClient` has the same methods as coroutines. The proxies of the environment (`http_proxy`, `all_proxy`) are
used only where `DET_USE_PROXY=1`, by `det` too, and never for a master on this machine.

    with Client() as client:
        experiment = client.create_experiment("search.yaml", "code/")
        experiment.wait()
        experiment.top_checkpoint().download("best")
"""
    classes = [sdk.Client, sdk.Experiment, sdk.Trial, sdk.Checkpoint]
    artifacts = [sdk.Artifact, sdk.ArtifactVersion, sdk.ArtifactCollection]
    figures = "## Figures\n\n[How to plot a search](../how-to/plot-a-search.md) shows them at work."
    return page(
        "Python client",
        intro,
        *(class_section(cls.__name__, cls, inherited=True) for cls in (*classes, *artifacts)),
        function_section("det.remote", remote_functions.remote)
        + "\n\n[Run a function on the cluster](../how-to/run-a-function-on-the-cluster.md) shows it at work.",
        class_section("RemoteFunction", remote_functions.RemoteFunction),
        class_section("RemoteCall", remote_functions.RemoteCall),
        class_section("RemoteCalls", remote_functions.RemoteCalls),
        function_section("det.experiment.create", experiment.create),
        figures,
        *(function_section(f"detlab.viz.{name}", getattr(viz, name)) for name in viz.__all__),
    )
