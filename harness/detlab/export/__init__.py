"""Versions of models in forms that others read: a model card, a bill of materials, MLflow's layout, an OCI artifact.

Each takes the folder of a checkpoint and its `VersionView`, and writes what was recorded and measured: nothing is
guessed. What trains, stores or registers models never lives here.
"""

from detlab.export.bom import BOM_NAME, bill_of_materials
from detlab.export.card import CARD_NAME, model_card
from detlab.export.contents import Contents, contents_of

__all__ = ["BOM_NAME", "CARD_NAME", "Contents", "bill_of_materials", "contents_of", "model_card"]
