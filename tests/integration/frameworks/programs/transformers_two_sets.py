"""Digits with the Trainer, validated on two sets, with accumulated gradients and a length in steps."""

from __future__ import annotations

import transformers
from digits import load
from transformers_digits import Classifier, Digits, Pace, accuracy

import detlab as det
from detlab.transformers import DetCallback, training_arguments

if __name__ == "__main__":
    training, (images, labels) = load()
    sets = {"even": Digits((images[::2], labels[::2])), "odd": Digits((images[1::2], labels[1::2]))}
    with det.core.init() as core_context:
        args = training_arguments(
            output_dir="out",
            per_device_train_batch_size=50,
            gradient_accumulation_steps=3,
            logging_steps=1,
            eval_strategy="steps",
            eval_steps=5,
            save_strategy="no",
            disable_tqdm=True,
        )
        transformers.set_seed(args.seed)
        trainer = transformers.Trainer(
            model=Classifier(),
            args=args,
            train_dataset=Digits(training),
            eval_dataset=sets,
            compute_metrics=accuracy,
            callbacks=[Pace(), DetCallback(core_context, args, filter_metrics=["accuracy"], user_data={"who": "me"})],
        )
        trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
        trainer.evaluate()
    print("after training")
