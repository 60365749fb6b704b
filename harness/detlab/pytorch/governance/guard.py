"""Watch what reaches the parameters: gradients around the router, backward passes and changes that are not ours.

It stands where gradients arrive at a parameter, before they are added up, averaged over ranks, or compressed.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from detlab.governance import Refusal
from detlab.pytorch.governance.router import ParameterPlace, Router

FIRST_BATCHES = 10
"""All of them are looked at."""
EVERY = 50
"""Of the others, one in so many."""
MOST_NAMED = 10


class Watch:
    """What the routed layers of one batch gave to each parameter.

    Args:
        router: The router.
        meter: Adds up each source's share.
        first: Whether it is the first batch, where it is looked at whether samples are apart.

    Attributes:
        half: Marks the samples whose losses alone are differentiated; None for all.
        inputs: What layers that run twice take, rows by sample, with the places of their parameters; None if not asked.
        coupled: Names of parameters whose layer gets a gradient at the rows of other samples.
        given: By index of parameter, the sum of what was routed.
    """

    def __init__(self, router: Router, meter: Any, *, first: bool) -> None:
        self._router = router
        self._meter = meter
        self.half: Any = None
        self.inputs: list[tuple[Any, Sequence[ParameterPlace]]] | None = [] if first else None
        self.coupled: dict[str, Any] = {}
        self.given: dict[int, Any] = {}

    def routed(self, g: Any, found: Mapping[str, tuple[ParameterPlace, Any]], again: Any) -> None:
        """Take note of one layer's backward pass.

        Args:
            g: Gradient of its output, rows by sample.
            found: Name in the layer -> (place, routed gradient).
            again: Computes the gradient of some rows: `again(name, their factors, what picks them)`.
        """
        if self.half is not None:
            self.entered(g, [place for place, _ in found.values()])
            return
        mine = {row: (self._router.rows == row).nonzero().flatten() for row in self._meter.present}
        for name, (place, gradient) in found.items():
            before = self.given.get(place.index)
            own = gradient.float() if gradient.element_size() < 4 else gradient
            self.given[place.index] = own if before is None else before + own
            scale = self._router.scales(place.column, g.shape[0])
            for row, own in mine.items():
                if self._router.distinct[place.column][row] != 0:
                    norm = torch.linalg.vector_norm(again(name, scale[own], operator.itemgetter(own)).float())
                    self._meter.add(row, place.index, norm)

    def entered(self, g: Any, places: Iterable[ParameterPlace]) -> None:
        """Take note of a gradient whose rows are samples; of all losses it says nothing.

        Args:
            g: The gradient, rows by sample.
            places: Of the parameters of the layer that it is in.
        """
        if self.half is None:
            return
        others = (torch.nan_to_num(g[~self.half], nan=0.0) != 0).any()  # zero times infinity is no coupling
        for place in places:
            self.coupled[place.name] = others | self.coupled.get(place.name, False)


class GradientGuard:
    """Looks at gradients as they arrive, and at parameters between steps.

    Args:
        router: The router.
        parameters: All that are trained, by name.
        routed: Names of those whose gradients a router's layer gives.

    Attributes:
        leak: Sum of the norms of what arrived and should not have.
        live: By name, the tensors that forward passes use: the parameters, or what FSDP2 gathers of them.
    """

    def __init__(self, router: Router, parameters: Mapping[str, Any], routed: Iterable[str]) -> None:
        self._router = router
        self._parameters = dict(parameters)
        self._routed = set(routed)
        self._inside = False
        self._armed = False
        self._outside: set[str] = set()
        self._found: list[tuple[str, Any]] = []
        self._versions: dict[str, tuple[int, int]] | None = None
        self._norms: Any = None
        self.leak = 0.0
        # The nodes are kept: a node that nobody refers to is made anew, without its hooks.
        self._nodes: list[Any] = []
        self.live = dict(self._parameters)
        for name in self.live:
            self._listen(name, self.live[name])

    def _listen(self, name: str, tensor: Any) -> None:
        place = self._router.place(tensor)
        assert place is not None
        node = torch.autograd.graph.get_gradient_edge(tensor).node
        node.register_prehook(functools.partial(self._arrived, name, place))
        self._nodes.append(node)

    def follow(self, modules: Iterable[Any]) -> None:
        """Listen also at what FSDP2 gathers, which is made in the first forward pass and stays the same tensor.

        Args:
            modules: Those that gather; empty: the model is not split.
        """
        names = {id(parameter): name for name, parameter in self._parameters.items()}
        for module in modules:
            held = [
                (child, own, names[id(parameter)])
                for child in module.modules()
                for own, parameter in child.named_parameters(recurse=False)
                if id(parameter) in names
            ]
            # Not in a compiled graph, which would be one for each tensor; FSDP2's own hooks are not in it either.
            hook = torch.compiler.disable(functools.partial(self._gathered, held))
            module.register_forward_pre_hook(hook)

    def _gathered(self, held: Sequence[tuple[Any, str, str]], module: Any, args: Any) -> None:
        for child, own, name in held:
            tensor = child._parameters[own]
            if self._router.place(tensor) is None:
                place = self._router.place(self._parameters[name])
                assert place is not None
                self._router.also(tensor, place)
                self.live[name] = tensor
                self._listen(name, tensor)

    def due(self, batch: int) -> bool:
        """Return whether a batch is looked at, counted from the beginning of this process."""
        return batch < FIRST_BATCHES or batch % EVERY == 0

    def begin(self, *, armed: bool) -> None:
        """Begin a backward pass of ours."""
        self._inside = True
        self._armed = armed
        self._found = []

    def end(self) -> list[Refusal]:
        """End it; return what was wrong with it."""
        self._inside = False
        if not self._armed:
            return []
        if unheard := self._unheard():
            return unheard
        if not self._found:
            return []
        norms = torch.stack([norm for _, norm in self._found]).tolist()
        wrong = [(name, norm) for (name, _), norm in zip(self._found, norms, strict=True) if norm != 0]
        self._found = []
        self.leak += sum(abs(norm) for _, norm in wrong if not math.isnan(norm))
        return [
            Refusal("LEAK", f"{name} got a gradient that the router did not give it (norm {norm:.3g})")
            for name, norm in wrong[:MOST_NAMED]
        ]

    def _unheard(self) -> list[Refusal]:
        """Return ENGINE if FSDP2 has gathered a parameter where nobody listened, as in a method beside `forward`."""
        names = [
            name
            for name, one in self._parameters.items()
            if self.live[name] is one and hasattr(one, "to_local") and one.grad is not None
        ]
        message = "was gathered where no policy looks: call the model that fully_shard has split, not a method of it"
        return [Refusal("ENGINE", f"{names[0]} {message}")] if names else []

    def outside(self) -> list[Refusal]:
        """Return what came from backward passes that were not ours, since the last question."""
        names, self._outside = sorted(self._outside), set()
        if not names:
            return []
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        return [Refusal("BYPASS", f"a backward pass that is not the policy's gave gradients to {shown}")]

    def _arrived(self, name: str, place: ParameterPlace, gradients: tuple[Any, ...]) -> None:
        if not self._inside:
            self._outside.add(name)
            return
        if not self._armed or gradients[0] is None:
            return
        gradient = gradients[0].detach()
        if self._router.is_open(place):
            return
        watch = self._router.watch
        column = self._router.distinct[place.column]
        if watch is not None and name in self._routed:
            self._found.append((name, _difference(gradient, watch.given.get(place.index))))
        elif all(column[row] == 0 for row in self.present):
            self._found.append((name, _norm(gradient)))

    present: frozenset[int] = frozenset()
    """Rows of the current batch, on this rank."""

    # --- parameters between steps

    def note(self, *, closely: bool) -> None:
        """Take note of the parameters after a step of ours.

        Args:
            closely: Whether also of their values: a write through `.data` changes no version.
        """
        self._versions = self._versions_now()
        self._norms = self._measure() if closely else None

    def changed(self) -> list[Refusal]:
        """Return the parameters that were changed since `note`."""
        if self._versions is None:
            self.note(closely=True)
        assert self._versions is not None
        names = [name for name, version in self._versions_now().items() if version != self._versions[name]]
        if self._norms is not None:
            same = (self._measure() == self._norms).tolist()
            names += [name for name, is_same in zip(self._parameters, same, strict=True) if not is_same]
        named = list(dict.fromkeys(names))[:MOST_NAMED]
        if named:
            self.note(closely=False)
        return [Refusal("OPTIMIZER", f"{name} was changed between two steps, by other code") for name in named]

    def _measure(self) -> Any:
        """Return a number for the values of each parameter; NaN counts as a number."""
        norms = torch._foreach_norm([_own(one).detach() for one in self._parameters.values()])
        return torch.nan_to_num(torch.stack([norm.double() for norm in norms]), nan=-1.0)

    def _versions_now(self) -> dict[str, tuple[int, int]]:
        return {name: (one._version, _own(one)._version) for name, one in self._parameters.items()}


@torch.no_grad()  # else it is a tensor of a graph, with a version of its own
def _own(parameter: Any) -> Any:
    """Return what of a parameter is on this rank: a shard of it under FSDP2, elsewhere the parameter."""
    return parameter.to_local() if hasattr(parameter, "to_local") else parameter


def _norm(gradient: Any) -> Any:
    """Return a norm that is zero only if all elements are; not a number counts, too."""
    return torch.linalg.vector_norm(gradient.float()).double()


def _difference(gradient: Any, given: Any) -> Any:
    """Return the norm of what a gradient has beyond what the router gave; zero within rounding."""
    if given is None:
        return _norm(gradient)
    given = given.to(gradient.dtype)
    beyond = torch.nan_to_num((gradient - given).double())
    size = torch.nan_to_num(given.double()).abs().max() if given.numel() else 0.0
    rounding = 64 * torch.finfo(gradient.dtype).eps * size
    odd = (torch.isnan(gradient) & ~torch.isnan(given)).any()
    return torch.where(
        odd, torch.inf, torch.where(beyond.abs().max() <= rounding, 0.0, torch.linalg.vector_norm(beyond))
    )
