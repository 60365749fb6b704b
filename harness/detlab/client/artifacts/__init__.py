"""Artifacts in the SDK: what one makes (`Artifact`), what was logged (`ArtifactVersion`), how files come and go.

`alogged.py` and `acalls.py` are written, `logged.py` and `calls.py` made from them. Not here: the requests
(client/operations/artifacts).
"""
