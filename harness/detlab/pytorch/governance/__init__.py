"""Training held to a policy: routed weight gradients, the guard that watches them, and what is measured of it.

`PyTorchTrial` uses it by itself when the experiment config has a block `governance`. For other loops:

    plan = compile_policy(Policy.of(block), governance.parameters_of_models([model]))
    governed = governance.Governed(plan, [model])
    with governed.batch(names_of_the_samples_sources):
        governed.backward(losses_of_the_samples)
    governed.step(optimizer)

A loop over `governed.parts(names)` in place of `governed.batch(names)` is one for all engines.

What a policy says and what is refused before training is `detlab.governance`, which needs no torch.
"""

from detlab.pytorch.governance.gates import ClipNorm
from detlab.pytorch.governance.governed import Governed, parameters_of_models
from detlab.pytorch.governance.planting import Canaries
from detlab.pytorch.governance.profiles import ModelProbe

__all__ = ["Canaries", "ClipNorm", "Governed", "ModelProbe", "parameters_of_models"]
