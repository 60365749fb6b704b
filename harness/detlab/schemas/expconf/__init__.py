"""The experiment config: Determined 0.38's YAML, checked, merged and completed with defaults.

    raw, problems = load_yaml(text, "config.yaml")     # YAML 1.2, line and column of errors
    problems += check(raw)                             # all errors and warnings
    raw = merge(raw, template)                         # a template or the cluster's defaults below it
    config = parse(raw, complete=True)                 # an ExperimentConfig, or ConfigError
    resolve(raw)                                       # the full config as plain JSON
    unsupported_keys(config)                           # keys that this runtime does not support yet
    command_of(entrypoint, slots)                      # what a task runs

Pure: no file, network or clock is touched here.
"""

from detlab.errors import ConfigError, Problem
from detlab.schemas.expconf.blocks.environment import (
    BindMount,
    Device,
    EnvironmentConfig,
    EnvironmentVariablesMap,
    ImageMap,
    ProxyPort,
    ResourcesConfig,
    parse_size,
)
from detlab.schemas.expconf.blocks.experiment import ExperimentConfig
from detlab.schemas.expconf.blocks.extras import LogPolicy, ReproducibilityConfig
from detlab.schemas.expconf.blocks.halving_searchers import (
    AdaptiveASHAConfig,
    ASHAConfig,
    AsyncHalvingConfig,
    BOHBConfig,
    HyperbandConfig,
)
from detlab.schemas.expconf.blocks.hyperparameters import (
    CategoricalHyperparameter,
    ConstHyperparameter,
    DoubleHyperparameter,
    Hyperparameter,
    Hyperparameters,
    IntHyperparameter,
    LogHyperparameter,
    OrdinalHyperparameter,
)
from detlab.schemas.expconf.blocks.lengths import Length
from detlab.schemas.expconf.blocks.population_searchers import DEHBConfig, PB2Config, PBTConfig, PopulationConfig
from detlab.schemas.expconf.blocks.searcher_base import SearcherBlock
from detlab.schemas.expconf.blocks.searchers import (
    CustomConfig,
    GridConfig,
    RandomConfig,
    SearcherConfig,
    SingleConfig,
    SobolConfig,
    UnnamedSearcher,
)
from detlab.schemas.expconf.blocks.storage import (
    AzureConfig,
    CheckpointStorage,
    DirectoryConfig,
    GCSConfig,
    S3Config,
    SharedFSConfig,
    UntypedStorage,
)
from detlab.schemas.expconf.checks.check import check, check_yaml, errors_of, in_order, is_trial_class, parse
from detlab.schemas.expconf.checks.unsupported import unsupported_keys
from detlab.schemas.expconf.entrypoints import command_of
from detlab.schemas.expconf.raw.loading import load_yaml
from detlab.schemas.expconf.raw.merging import merge
from detlab.schemas.expconf.resolving import resolve, to_dict, without_defaults

__all__ = [
    "ASHAConfig",
    "AdaptiveASHAConfig",
    "AsyncHalvingConfig",
    "AzureConfig",
    "BOHBConfig",
    "BindMount",
    "CategoricalHyperparameter",
    "CheckpointStorage",
    "ConfigError",
    "ConstHyperparameter",
    "CustomConfig",
    "DEHBConfig",
    "Device",
    "DirectoryConfig",
    "DoubleHyperparameter",
    "EnvironmentConfig",
    "EnvironmentVariablesMap",
    "ExperimentConfig",
    "GCSConfig",
    "GridConfig",
    "HyperbandConfig",
    "Hyperparameter",
    "Hyperparameters",
    "ImageMap",
    "IntHyperparameter",
    "Length",
    "LogHyperparameter",
    "LogPolicy",
    "OrdinalHyperparameter",
    "PB2Config",
    "PBTConfig",
    "PopulationConfig",
    "Problem",
    "ProxyPort",
    "RandomConfig",
    "ReproducibilityConfig",
    "ResourcesConfig",
    "S3Config",
    "SearcherBlock",
    "SearcherConfig",
    "SharedFSConfig",
    "SingleConfig",
    "SobolConfig",
    "UnnamedSearcher",
    "UntypedStorage",
    "check",
    "check_yaml",
    "command_of",
    "errors_of",
    "in_order",
    "is_trial_class",
    "load_yaml",
    "merge",
    "parse",
    "parse_size",
    "resolve",
    "to_dict",
    "unsupported_keys",
    "without_defaults",
]
