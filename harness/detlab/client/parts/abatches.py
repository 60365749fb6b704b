"""The part of the asynchronous client that does the same to many experiments."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from detlab.client.operations import batches
from detlab.client.ordering import archived_filter, several
from detlab.client.transport.session import AsyncSession
from detlab.schemas.wire.batches import BatchAct, BatchReply


class AsyncBatchCalls:
    """One act on many experiments of a cluster."""

    session: AsyncSession

    async def act_on_experiments(
        self,
        act: BatchAct,
        experiment_ids: Sequence[int] = (),
        *,
        filter: str = "",  # noqa: A002  (its name in requests)
        archived: bool | None = False,
        labels: Collection[str] | str = (),
        workspace: str | int = "",
        project: str | int = "",
        keep_storage: bool = False,
        dry_run: bool = False,
    ) -> BatchReply:
        """Pause, activate, cancel, kill, archive, unarchive, delete, move or label many experiments.

        Each is done by itself, with the right that it takes: what one refuses is said in its item, and the others are
        done all the same.

        Args:
            act: `pause`, `activate`, `cancel`, `kill`, `archive`, `unarchive`, `delete`, `move`, `add_labels` or
                `remove_labels`.
            experiment_ids: Which experiments, or:
            filter: All that you may see and that fulfil it: `state = ERROR and created < -30d`.
            archived: Of a filter: False leaves out archived ones, True all others; None leaves out none.
            labels: Of `add_labels` and `remove_labels`.
            workspace: Of `move`: a name, `OWNER/NAME` or id; empty: the personal one of each one's owner.
            project: Of `move`: a name or id; empty: the one for what names none.
            keep_storage: Of `move`: also if the workspace gives another storage for checkpoints.
            dry_run: Only say which experiments these are, and what you may not do.

        Returns:
            What became of each, and in `undo` what takes it back; see `undo`.

        Raises:
            ConfigError: The filter cannot be read, or something that the act needs is missing.
        """
        flow = batches.run(
            act,
            experiment_ids,
            filter=filter,
            archived=archived_filter(archived) or "no",
            labels=list(several(labels) or ()),
            workspace=str(workspace),
            project=str(project),
            keep_storage=keep_storage,
            dry_run=dry_run,
        )
        return await self.session.run(flow)

    async def undo(self, reply: BatchReply) -> BatchReply:
        """Take back what `act_on_experiments` did: archiving, moves and labels; return what became of each."""
        return await self.session.run(batches.undo(reply))
