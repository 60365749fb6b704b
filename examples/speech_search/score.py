"""Score a checkpoint of `SpeechTrial` on the utterances that no trial saw: `python score.py FOLDER`."""

import sys

import torch

from detlab import pytorch

trial = pytorch.load_trial_from_checkpoint_path(sys.argv[1])  # the class comes from the checkpoint too
trial.model.eval()
test = trial.data["test"]
with torch.no_grad():
    metrics = trial.evaluate_batch(test[:])
print(f"held-out test set: accuracy {metrics['accuracy']:.4f}, loss {metrics['loss']:.4f} over {len(test)} utterances")
