"""Digits with a model whose weights transformers saves under other names than it has in memory."""

from __future__ import annotations

import transformers
import transformers_digits

import detlab as det


def vision_transformer() -> transformers.PreTrainedModel:
    return transformers.ViTForImageClassification(
        transformers.ViTConfig(
            image_size=8, patch_size=2, num_channels=1, num_labels=10, hidden_size=32, num_hidden_layers=2,
            num_attention_heads=2, intermediate_size=64, hidden_dropout_prob=0.1,
        )
    )  # fmt: skip


if __name__ == "__main__":
    transformers_digits.Classifier = vision_transformer
    with det.core.init() as core_context:
        transformers_digits.main(core_context)
