"""What the blocks of all search methods have."""

from __future__ import annotations

from pydantic import Field

from detlab.schemas.expconf.blocks.scalars import Block, FilledText, Flag, PositiveInt, Text, needed


class SearcherBlock(Block):
    """What all searchers have."""

    metric: FilledText | None = needed("Validation metric that ranks the trials.")
    smaller_is_better: Flag = Field(True, description="Whether a smaller metric is better.")
    source_trial_id: PositiveInt | None = Field(
        None, description="Start from the checkpoint that is this trial's latest at the time of submission."
    )
    source_checkpoint_uuid: Text | None = Field(None, description="Start from this checkpoint.")
