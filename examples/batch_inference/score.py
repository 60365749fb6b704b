"""Score a registered model of `../digits_trial` on all of scikit-learn's digits, each rank its share of the batches."""

import json
import logging
import os
import time

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

import detlab as det
from detlab import pytorch
from detlab.pytorch.experimental import TorchBatchProcessor, torch_batch_process


def digits():
    """Return a dataset of (image [1, 8, 8] in 0..1, label), 1,797 of them."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype(np.float32).reshape(-1, 1, 8, 8)
    return TensorDataset(torch.from_numpy(images), torch.from_numpy(labels))


def accuracy(pairs):
    """Return the share of right labels: `pairs` has (right, seen) of each batch of all ranks."""
    right, seen = zip(*pairs, strict=True)
    return sum(right) / sum(seen)


class Scorer(TorchBatchProcessor):
    """Writes the label of each image, and counts how many are right."""

    def __init__(self, context):
        self.context = context
        with context.source_checkpoint_path() as folder:  # searcher.source_checkpoint_uuid
            trial = pytorch.load_trial_from_checkpoint_path(folder)  # the class comes from the checkpoint too
        self.model = context.prepare_model_for_inference(trial.model)
        self.accuracy = context.wrap_reducer(accuracy, name="accuracy")
        self.lines = []

    def process_batch(self, batch, batch_idx):
        images, labels = self.context.to_device(batch)
        with torch.no_grad():
            found = self.model(images).softmax(1)
        for index, row in zip(self.context.current_sample_ids(), found.tolist(), strict=True):
            label = max(range(10), key=row.__getitem__)
            self.lines.append(json.dumps({"index": index, "label": label, "confidence": row[label]}))
        self.accuracy.update((int((found.argmax(1) == labels).sum()), len(labels)))
        time.sleep(float(os.environ.get("BATCH_SECONDS", "0")))  # to have time to pause it

    def on_checkpoint_start(self):
        """Write what came since the last checkpoint: a resumed attempt begins after it."""
        if self.lines:
            with self.context.upload_path() as folder:
                first = json.loads(self.lines[0])["index"]
                (folder / f"labels-{first:06}.jsonl").write_text("\n".join(self.lines) + "\n")
            self.lines = []


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    torch_batch_process(Scorer, digits(), batch_size=64, checkpoint_interval=5)
