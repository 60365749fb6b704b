"""Digits with Hugging Face's Trainer."""

from __future__ import annotations

import logging
from typing import Any

import torch
import transformers
from digits import Split, load, wait

import detlab as det
from detlab.transformers import DetCallback, training_arguments


class Digits(torch.utils.data.Dataset):
    def __init__(self, split: Split) -> None:
        self.images, self.labels = split

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"pixel_values": torch.from_numpy(self.images[index])[None], "labels": int(self.labels[index])}


class Pace(transformers.TrainerCallback):
    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        wait()


class Classifier(torch.nn.Module):
    """What a Trainer takes: a module that returns its loss where it is given labels."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Flatten(),
            torch.nn.Linear(64, 64),
            torch.nn.ReLU(),
            torch.nn.Dropout(0.2),
            torch.nn.Linear(64, 10),
        )

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.net(pixel_values)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def accuracy(found: transformers.EvalPrediction) -> dict[str, float]:
    return {"accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())}


def main(core_context: det.core.Context) -> None:
    training, validation = load()
    # The hyperparameter `training_arguments` counts before these, and the search says how many epochs.
    args = training_arguments(
        output_dir="out",
        use_cpu=not torch.cuda.is_available(),
        num_train_epochs=4,
        per_device_train_batch_size=64 // core_context.distributed.size,
        per_device_eval_batch_size=215,
        learning_rate=3e-3,
        logging_steps=6,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        disable_tqdm=True,
    )
    transformers.set_seed(args.seed)
    callback = DetCallback(core_context, args)
    trainer = transformers.Trainer(
        model=Classifier(),
        args=args,
        train_dataset=Digits(training),
        eval_dataset=Digits(validation),
        compute_metrics=accuracy,
        callbacks=[Pace(), callback],
    )
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    # With one process there is nothing to connect; under `detlab.launch.torch_distributed` there is.
    ranks = (
        det.core.DistributedContext.from_torch_distributed() if torch.distributed.is_torchelastic_launched() else None
    )
    with det.core.init(distributed=ranks) as core_context:
        main(core_context)
