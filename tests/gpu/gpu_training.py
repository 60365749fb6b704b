"""Mixed precision, exact resume, and compiled models: `Trainer.fit` beside loops written by hand."""

from __future__ import annotations

import math
import shutil
import time
from typing import Any

import torch
from gpu_report import Run, SkippedError
from gpu_trials import BATCH, Course, fit, network
from torch import nn

from detlab.pytorch.checkpoint import rng

OVERFLOWS = frozenset({5, 6, 17})
STEPS = 40
HALF = 0.02
"""Relative difference of two losses in half precision that is taken for rounding."""


def by_hand(device: str, half: torch.dtype, order: list[Any]) -> tuple[list[float], list[float]]:
    """Return losses and scales of a loop as torch's documentation has it, on the same batches."""
    model = network(0.0).to(device)
    scaler = torch.amp.GradScaler(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses, scales = [], []
    for index, (x, y) in enumerate(order):
        scales.append(scaler.get_scale())
        with torch.autocast(device, dtype=half):
            output = model(x.to(device))
        loss = nn.functional.cross_entropy(output.float(), y.to(device))
        losses.append(loss.item())
        scaler.scale(loss * (1e36 if index in OVERFLOWS else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    return losses, scales


def _compare(run: Run, course: Course, half: torch.dtype) -> None:
    """Check losses and scale of a course against the loop by hand."""
    losses, scales = by_hand(run.device, half, course.batches)
    assert len(course.losses) == STEPS
    assert all(map(math.isfinite, course.losses)), course.losses
    apart = max(abs(a - b) / b for a, b in zip(course.losses, losses, strict=True))
    assert apart <= HALF, f"the losses differ by {apart:.2g}: {course.losses} and {losses}"
    assert course.losses[-1] < course.losses[0], "it learns nothing"
    assert course.scales == scales, f"the scale is {course.scales}, and {scales} by hand"
    # In fp16 the first steps may overflow by themselves, until the scale has come down.
    halved = {index for index in range(STEPS - 1) if scales[index + 1] == scales[index] / 2}
    assert halved >= OVERFLOWS, f"the scale was halved after {sorted(halved)}, not after {sorted(OVERFLOWS)}"
    run.figure("steps skipped for an overflow", str(len(halved)), f"{len(OVERFLOWS)} of them were made")
    run.figure("largest difference of a loss to the loop written by hand", f"{apart:.2g}", f"{STEPS} steps, relative")
    run.figure("loss, first and last", f"{course.losses[0]:.3f}, {course.losses[-1]:.3f}")


def amp_fp16(run: Run) -> None:
    """`use_amp`: fp16 on a GPU (bf16 on a CPU), scaled losses, skipped overflows."""
    half = torch.get_autocast_dtype(run.device)
    seen: list[torch.dtype] = []

    def hooked() -> nn.Module:
        net = network(0.0)
        net[0].register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
        return net

    course = Course(net=hooked, prepare=lambda trial: trial.context.experimental.use_amp(), overflows=OVERFLOWS)
    fit(course, run.folder / "storage", STEPS)
    assert set(seen) == {half}, seen
    run.figure("autocast of use_amp lowers to", str(half))
    if not run.cpu:
        assert half is torch.float16
    _compare(run, course, half)


def amp_bf16(run: Run) -> None:
    """A scaler of the trial's own, with autocast to bf16 in its forward pass."""
    if not run.cpu and not torch.cuda.is_bf16_supported():
        raise SkippedError("this GPU has no bf16")

    def prepare(trial: Any) -> None:
        trial.course.scaler = trial.context.wrap_scaler(torch.amp.GradScaler(run.device))

    def forward(trial: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(run.device, dtype=torch.bfloat16):
            output = trial.model(x)
        assert output.dtype is torch.bfloat16, output.dtype
        return output.float()

    course = Course(net=lambda: network(0.0), prepare=prepare, forward=forward, overflows=OVERFLOWS)
    fit(course, run.folder / "storage", STEPS)
    _compare(run, course, torch.bfloat16)


def resume(run: Run) -> None:
    """Stop after 20 batches with dropout, resume, and get the losses of the run that did not stop, to the bit."""
    whole = fit(Course(), run.folder / "storage", STEPS, every=STEPS // 2)
    first = whole.saved[STEPS // 2]
    assert rng.capture()["cuda"] is None or not run.cpu
    # Some other state of the generators, as a new process has it.
    torch.rand(17, device=run.device)
    resumed = fit(Course(), run.folder / "storage", STEPS, start=first)
    assert resumed.losses == whole.losses[STEPS // 2 :], (resumed.losses, whole.losses)
    # Dropout is drawn on the device: without the state of its generator the losses would not be these.
    other = fit(Course(net=lambda: network(0.0)), run.folder / "other", 2)
    assert other.losses[0] != whole.losses[0], "dropout has no effect, so this check shows nothing"
    if not run.cpu:
        assert rng.capture()["cuda"] is not None
    run.figure(
        "losses after a resume that are equal to the bit", f"{len(resumed.losses)} of {STEPS // 2}", "with dropout"
    )


def compile(run: Run) -> None:  # noqa: A001  # named as torch's function
    """`torch.compile`: the same losses, and a checkpoint that the plain model resumes from."""
    if shutil.which("gcc") is None and shutil.which("cc") is None:
        raise SkippedError("torch.compile needs a C compiler, and there is none")
    backend = "aot_eager" if run.quick else "inductor"
    began = time.monotonic()
    try:
        torch.compile(nn.Linear(2, 2).to(run.device), backend=backend)(torch.zeros(2, 2, device=run.device))
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        if any(word in text for word in ("C compiler", "TritonMissing", "Python.h")):
            raise SkippedError(f"torch cannot compile here: {text[:200]}") from error
        raise
    run.figure("first compilation", f"{time.monotonic() - began:.1f} s", backend)
    steps = 20
    plain = fit(Course(net=lambda: network(0.0)), run.folder / "plain", steps)
    compiled = fit(
        Course(net=lambda: torch.compile(network(0.0), backend=backend)),
        run.folder / "compiled",
        steps,
        every=steps // 2,
    )
    apart = max(abs(a - b) / b for a, b in zip(compiled.losses, plain.losses, strict=True))
    assert apart < 1e-3, f"the compiled model's losses differ by {apart:.2g}"
    resumed = fit(Course(net=lambda: network(0.0)), run.folder / "compiled", steps, start=compiled.saved[steps // 2])
    between = max(abs(a - b) / b for a, b in zip(resumed.losses, plain.losses[steps // 2 :], strict=True))
    assert between < 1e-3, f"after a resume in the plain model the losses differ by {between:.2g}"
    run.figure("largest difference of a loss, compiled and not", f"{apart:.2g}", f"{steps} steps of {BATCH}")
