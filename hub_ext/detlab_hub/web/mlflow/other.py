"""What clients ask besides, and all that is not served: it says what is here instead."""

from __future__ import annotations

from urllib.parse import urlsplit

from detlab_hub.web.mlflow.base import Empty, NoEndpoint, ProtocolHandler
from detlab_hub.web.paths import protocol
from detlab_hub.web.scopes import needs

OURS = {
    "registered-models": "Models are in detlab's registry: det model --help.",
    "model-versions": "Versions of models are in detlab's registry: det model --help.",
    "webhooks": "An operator sets webhooks: c.DetHub.webhooks.",
    "users": "Rights come by workspaces: det workspace list-members.",
    "permissions": "Rights come by workspaces: det workspace list-members.",
    "metrics": "Curves: det trial metrics, Client.get_trial(…).metrics().",
    "gateway": "detlab has no gateway for models of others.",
    "scorers": "detlab has no scorers.",
    "traces": "detlab keeps no traces; the output of a trial is its log: det trial logs.",
    "datasets": "A run's data sets are logged with it: mlflow.log_input.",
    "graphql": "That is for MLflow's page; detlab has its own.",
    "runs": "Runs are in projects here: det project list.",
    "experiments": "Experiments are projects here: det project list.",
}
"""Part of a path that is not served -> the name of ours."""


@protocol("mlflow/health", "mlflow/version")
class Health(ProtocolHandler):
    """Whether it is there."""

    @needs("public", cross_site="open", media="text/plain")
    async def get(self) -> None:
        """Say so."""
        self.set_header("Content-Type", "text/plain")
        self.finish("OK")


@protocol("mlflow/")
class PageOfRuns(ProtocolHandler):
    """Where clients say that a run can be looked at: `mlflow/#/experiments/1/runs/RUN`."""

    @needs("public", cross_site="open", media="text/html")
    async def get(self) -> None:
        """Lead to the page; a browser keeps what stands after `#`, which the page understands."""
        self.redirect("../")


@protocol("mlflow/{anything}")
class NotHere(ProtocolHandler):
    """Every other path of the protocol."""

    @needs("read", "task", cross_site="bearer", reads=True)
    async def get(self, anything: str) -> Empty:
        """Refuse, and say what is here instead."""
        ours = next((said for part, said in OURS.items() if part in anything.split("/")), "")
        raise NoEndpoint(
            f"detlab does not serve {urlsplit(self.request.uri or '').path[:200]}",
            hint=ours or "What is served: docs/how-to/log-with-mlflow.md.",
        )

    post = put = patch = delete = get
