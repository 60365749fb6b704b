"""Wire models of artifacts: named folders in versions, which runs use and make.

Not here: media of a trial (`detlab.schemas.wire.media`), and checkpoints.
"""
