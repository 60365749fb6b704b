"""Search spaces: what a `hyperparameters` block and the relations of a `searcher` block mean.

Pure, and used on both sides: clients check a config with it, and the master draws trials with it. Search methods do not
live here.
"""

from detlab.schemas.space.distinct import Distinct, number_of_points
from detlab.schemas.space.grid import Grid, count_points
from detlab.schemas.space.points import MAX_TRIES, FixedDraws, Space, SpaceError
from detlab.schemas.space.relations import Relation, RelationError, parse_relation
from detlab.schemas.space.tree import Leaf, is_condition, is_group, leaves_of
from detlab.schemas.space.values import Draws

__all__ = [
    "MAX_TRIES",
    "Distinct",
    "Draws",
    "FixedDraws",
    "Grid",
    "Leaf",
    "Relation",
    "RelationError",
    "Space",
    "SpaceError",
    "count_points",
    "is_condition",
    "is_group",
    "leaves_of",
    "number_of_points",
    "parse_relation",
]
