"""The part of the asynchronous client that finds trials and experiments, compares and reports them, and keeps views."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detlab.client.operations import finding, saved_views
from detlab.client.operations.runs import comparison
from detlab.client.ordering import archived_filter, several
from detlab.client.tabular import FOUND_COLUMNS, found_rows, frame
from detlab.client.transport.session import AsyncSession
from detlab.schemas.wire.comparison import CodeComparison, ComparedSeries, RunComparison
from detlab.schemas.wire.finding import Completions, FilteredTable, FoundTrials
from detlab.schemas.wire.saved_views import SavedView

if TYPE_CHECKING:
    from detlab.reports import WrittenReport


class AsyncFindingCalls:
    """Trials of all experiments of a cluster, found by filters."""

    session: AsyncSession

    async def search_trials(
        self,
        filter: str = "",  # noqa: A002  (its name in requests)
        *,
        sort: Collection[str] | str = (),
        columns: Collection[str] | str = (),
        archived: bool | None = False,
        limit: int | None = None,
    ) -> Any:
        """Find trials in all experiments that you may read, and return them as a pandas frame, a row each.

        Args:
            filter: Which: `accuracy > 0.9 and hparams.lr < 1e-3 and label = paper`; empty: all.
            sort: Fields in order of importance, with `-` before them for descending; without any the newest first.
            columns: Further columns: metrics such as `accuracy` (at the best validation), `loss.min`,
                `training.loss.last`, and fields such as `duration`. Hyperparameters are there already.
            archived: False leaves out trials of archived experiments, True all others; None leaves out none.
            limit: Return at most this many; None: all.

        Raises:
            ConfigError: The filter, the order or a column cannot be read; it says where.
            DetlabError: pandas is not installed.
        """
        found = await self.find_trials(filter, sort=sort, columns=columns, archived=archived, limit=limit)
        return frame(found_rows(found), (*FOUND_COLUMNS, *(column.name for column in found.columns)))

    async def find_trials(
        self,
        filter: str = "",  # noqa: A002  (its name in requests)
        *,
        sort: Collection[str] | str = (),
        columns: Collection[str] | str = (),
        archived: bool | None = False,
        limit: int | None = None,
    ) -> FoundTrials:
        """Find trials as `search_trials` does, and return them as they come: no pandas is needed."""
        wanted = finding.find_trials(
            filter,
            sort=several(sort) or (),
            columns=several(columns) or (),
            archived=archived_filter(archived),
            limit=limit,
        )
        return await self.session.run(wanted)

    async def complete_filter(
        self, text: str, *, table: FilteredTable = "trials", cursor: int | None = None
    ) -> Completions:
        """Return what may come next in a filter at a cursor, by default at its end, and what is wrong with it."""
        return await self.session.run(finding.complete(text, table=table, cursor=cursor))

    async def compare(
        self,
        *experiments: int,
        trials: Collection[int] = (),
        runs: Collection[str] | str = (),
        metrics: Collection[str] | str = (),
    ) -> RunComparison:
        """Return experiments, trials and runs from anywhere side by side: hyperparameters, config, metrics.

        For an experiment its best trial stands; where its search trains points with several seeds, the trials of the
        point with the best mean. What you may not read is in `absent_trials`, `absent_experiments` and `absent_runs`,
        by its id.

        Args:
            experiments: Ids of experiments.
            trials: Ids of trials.
            runs: Runs that no cluster started: their ids, or keys of your own.
            metrics: Names of metrics; none: all.

        Raises:
            ConfigError: There are no runs, or more than fifty.
        """
        return await self.session.run(
            comparison.compare(experiments, trials, several(runs) or (), metrics=several(metrics) or ())
        )

    async def compare_curves(
        self,
        trials: Collection[int] = (),
        *,
        runs: Collection[str] | str = (),
        metrics: Collection[str] | str = (),
        group: str | None = None,
        max_points: int = 500,
    ) -> list[ComparedSeries]:
        """Return the curves of trials of any experiments, and of runs from anywhere, which have a `run_id`.

        What you may not read is left out. Metrics of runs have the groups and names by which they are compared with
        those of trials: `val_loss` is one of `validation`, `validation/loss` is `loss` there, `loss` one of `training`.

        Args:
            trials: Ids of trials.
            runs: Runs that no cluster started: their ids, or keys of your own.
            metrics: Names of metrics; none: all.
            group: `validation`, `training` or another group of metrics; None: all.
            max_points: Points of each curve; extremes and the last point stay exact.
        """
        wanted = comparison.curves(
            trials, several(runs) or (), names=several(metrics) or (), group=group, max_points=max_points
        )
        return await self.session.run(wanted)

    async def compare_code(self, *experiments: int, trials: Collection[int] = ()) -> CodeComparison:
        """Return the files of the code that are not the same in all runs, with the lines that differ."""
        return await self.session.run(comparison.code(experiments, trials))

    async def report(
        self,
        path: str | Path = "report.html",
        *,
        project: str = "",
        experiments: Collection[int] = (),
        runs: Collection[str] | str = (),
        filter: str = "",  # noqa: A002  (its name in requests)
        title: str = "",
        notes: str = "",
        notes_file: str = "",
        limit: int = 200,
    ) -> WrittenReport:
        """Write a report: a snapshot of experiments and runs, which opens without a cluster.

        Tables, learning curves, configs, digests of code and checkpoints, registered models, artifacts, the newest
        pictures, and the commands that make all of it again. A file that is there is replaced.

        Args:
            path: A page, `.html`, or a notebook, `.ipynb`.
            project: Of this project: `NAME` of your personal workspace, `WORKSPACE/NAME` or `OWNER/WORKSPACE/NAME`.
            experiments: These experiments, beside.
            runs: These runs that no cluster started, beside: their ids, or keys of your own.
            filter: Experiments that fulfil it, of the project or of all; then no runs but those that are named.
            title: Its title; default the project's name.
            notes: Markdown that stands at its top.
            notes_file: Name of the file that has them, for the command in the report that makes it again.
            limit: Experiments of the project or the filter, and runs: the newest, 200 at most of each.

        Raises:
            ValueError: The name of the file ends otherwise.
            ConfigError: Nothing is named, or the filter cannot be read.
            NotFound: Something that is named is not there, or not yours to see.
            DetlabError: The file cannot be written.
        """
        from detlab.client.operations.runs.reporting import ReportRequest, report_facts
        from detlab.reports import check_form, write_report

        target = Path(path)
        check_form(target)
        ids, names = tuple(several(experiments) or ()), tuple(several(runs) or ())
        wanted = ReportRequest(project, ids, names, filter, title, notes, limit)
        where, command = self.session.address.url, wanted.command(str(path), notes_file)
        facts = await self.session.run(report_facts(wanted, address=where, now=time.time(), command=command))
        return await asyncio.to_thread(write_report, facts, target)

    async def list_saved_views(self, table: FilteredTable | None = None) -> list[SavedView]:
        """Return your saved views and those of projects that you may read, of one table or of all."""
        return await self.session.run(saved_views.saved_views(table))

    async def save_view(
        self,
        name: str,
        filter: str = "",  # noqa: A002  (its name in requests)
        *,
        table: FilteredTable = "trials",
        sort: Collection[str] | str = (),
        columns: Collection[str] | str = (),
        workspace: str | int | None = None,
        project: str | int | None = None,
    ) -> SavedView:
        """Keep a filter, an order and columns under a name; a view of yours that has it is replaced.

        Args:
            name: Its name.
            filter: Which rows.
            table: Of which table.
            sort: Fields in order of importance, with `-` before them for descending.
            columns: Fields that are shown.
            workspace: Where its members have the view, too: its name, `OWNER/NAME` or id; None: it is yours alone.
            project: The project of it, or of your personal one.
        """
        given = {"sort": several(sort) or (), "columns": several(columns) or ()}
        wanted = saved_views.save_view(name, table, filter, **given, workspace=workspace, project=project)
        return await self.session.run(wanted)

    async def remove_view(self, name: str, *, table: FilteredTable = "trials") -> SavedView:
        """Remove a saved view of yours; return it as it was."""
        return await self.session.run(saved_views.remove_view(name, table))
