import math
import random

import wandb


def train(config):
    run = wandb.init(project="mnist-cnn", name="baseline", config=config, tags=["cnn"])
    random.seed(run.config.seed)
    best = 0.0
    for epoch in range(run.config.epochs):
        loss = math.exp(-epoch / 5) + 0.1 * random.random() * wandb.config.learning_rate
        accuracy = 1 - loss / 2
        best = max(best, accuracy)
        wandb.log({"epoch": epoch, "train/loss": loss, "val": {"accuracy": accuracy}})
    wandb.summary["best_accuracy"] = best
    run.finish()


if __name__ == "__main__":
    train({"learning_rate": 0.01, "epochs": 5, "batch_size": 64, "seed": 1})
