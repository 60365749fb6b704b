"""Tables that cells show: cluster status and experiment lists, as HTML and as text."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from detlab.client.facts import without_result
from detlab.client.rendering import NO_MATH
from detlab.errors import DetlabError
from detlab.schemas.wire import ExperimentView
from detlab_magics.plaintext import in_notebook, plain
from detlab_magics.view.text import number, state_word

if TYPE_CHECKING:
    from detlab_magics.kernel import KernelSession


def html_table(header: list[str], rows: list[list[str]]) -> str:
    """Return an HTML table; every cell is escaped."""
    cell = "text-align:left;padding:2px 12px 2px 0;white-space:nowrap"
    head = "".join(f'<th style="{cell}">{escape(h)}</th>' for h in header)
    body = "".join("<tr>" + "".join(f'<td style="{cell}">{escape(c)}</td>' for c in r) + "</tr>" for r in rows)
    return f'<table {NO_MATH} style="font-size:12px"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def text_table(header: list[str], rows: list[list[str]]) -> str:
    """Return an aligned text table."""
    table = [header, *rows]
    widths = [max(len(r[i]) for r in table) for i in range(len(header))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in table)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _trials(e: ExperimentView) -> str:
    """Return how many trials an experiment has, and how many of them failed."""
    failed = e.trials.get("ERROR", 0)
    known = sum(count for state, count in e.trials.items() if state != "RUNNING") or e.trials_total or "–"
    return f"{known}, {failed} failed" if failed else str(known)


@dataclass(frozen=True)
class StatusTable:
    """The answer of %det."""

    lines: list[str]
    magics: list[tuple[str, str]]

    @classmethod
    def collect(cls, session: KernelSession, magics: list[tuple[str, str]]) -> StatusTable:
        """Ask the cluster; a cluster out of reach becomes a line with the next command."""
        try:
            client = session.client()
            cluster, user = client.get_cluster(), client.whoami()
        except DetlabError as problem:
            session.forget_client()
            hint = [f"next: {in_notebook(problem.hint)}"] if problem.hint else []
            return cls([f"no cluster: {plain(problem.message, 400)}", *hint], magics)
        agents, active = _counted(cluster.agents, "agent"), _counted(cluster.experiments_active, "experiment")
        busy = f"{cluster.slots_used} of {_counted(cluster.slots_total, 'slot')} in use on {agents}, {active} active"
        drained = ["the cluster is being drained: nothing new starts"] if cluster.draining else []
        guess = client.address.guess
        guessed = [f"a guess ({plain(guess, 400)}): name it by DET_URL to change anything there"] if guess else []
        return cls([f"{client.address.url} as {plain(user.name)}", *guessed, busy, *drained], magics)

    def __repr__(self) -> str:
        """Return the text form."""
        return "\n".join([*self.lines, "", text_table(["magic", "what it does"], [list(m) for m in self.magics])])

    def _repr_html_(self) -> str:
        lines = "".join(f"<div>{escape(line)}</div>" for line in self.lines)
        return f"<div {NO_MATH}>{lines}{html_table(['magic', 'what it does'], [list(m) for m in self.magics])}</div>"


@dataclass(frozen=True)
class Listing:
    """The answer of %det_list."""

    experiments: list[ExperimentView]
    active: bool
    hidden: int = 0
    """Archived ones, if there are no others."""

    HEADER = ("id", "name", "state", "trials", "best", "progress")

    def rows(self) -> list[list[str]]:
        """Return the table's rows."""
        return [
            [
                str(e.id),
                plain(e.name, 60),
                f"{state_word(e)}, no result" if without_result(e) else state_word(e),
                _trials(e),
                f"{plain(e.metric, 24)} {number(e.best.value)}{' (trial failed)' * e.best.failed}" if e.best else "–",
                f"{100 * e.progress:.0f} %",
            ]
            for e in self.experiments
        ]

    def __repr__(self) -> str:
        """Return the text form."""
        return text_table(list(self.HEADER), self.rows()) if self.experiments else self._empty()

    def _repr_html_(self) -> str:
        if not self.experiments:
            return f"<div>{escape(self._empty())}</div>"
        return html_table(list(self.HEADER), self.rows())

    def _empty(self) -> str:
        if self.active:
            return "No active experiments. %det_list shows ended ones."
        if self.hidden:
            return f"All experiments are archived ({self.hidden}): %det_watch ID shows one."
        return "No experiments yet. Submit one with %%det_experiment (%%det_experiment? shows how)."
