"""LegacyTrial: what an entrypoint of Determined's old form `legacy_trial:LegacyTrial` names."""

from ported_trial import PortedTrial


class LegacyTrial(PortedTrial):
    """The ported trial; a batch takes long enough for the profiler to sample."""

    def __init__(self, context):
        super().__init__(context, context.get_hparams(), pace=0.01)
