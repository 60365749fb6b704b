"""Operations on artifacts: named folders in versions, which runs use and make.

Not here: the objects that people use (`detlab.client.artifacts`).
"""
