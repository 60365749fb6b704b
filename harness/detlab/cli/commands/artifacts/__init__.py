"""`det artifact …`: named folders in versions, which runs use and make.

Not here: models (`det model`), and what a trial logs beside its metrics (`det trial media`).
"""
