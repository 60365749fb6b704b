"""The model registry in the SDK: `Model`, `ModelVersion`, and `load_model`.

`amodels.py` and `acalls.py` are written, `models.py` and `calls.py` made from them. Not here: the requests
(client/operations/registry.py).
"""
