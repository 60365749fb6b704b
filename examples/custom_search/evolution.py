"""A (1+λ) evolution strategy: each generation varies the best point so far, in smaller steps the longer it runs."""

import random

from detlab.searcher import AskTell


class Evolution(AskTell):
    """λ points around the best one; the next generation begins when all of them have ended.

    Args:
        offspring: λ, the points of a generation.
        width: The first step, as a share of each range; it shrinks by a fifth with each generation.
    """

    def __init__(self, offspring=4, width=0.3):
        self.offspring, self.width = offspring, width
        self.parent, self.asked, self.told = None, 0, 0

    def ask(self, state):
        if self.asked >= (self.told // self.offspring + 1) * self.offspring:
            return None  # this generation is complete: wait for its results
        self.asked += 1
        if self.parent is None:
            return state.sample()
        return {name: self.varied(state, name, value) for name, value in self.parent[1].items()}

    def varied(self, state, name, value):
        spec = state.hyperparameters[name]
        low, high = spec["minval"], spec["maxval"]
        step = random.gauss(0, self.width * 0.8 ** (self.told // self.offspring)) * (high - low)
        return min(max(value + step, low), high)

    def tell(self, state, request_id, hyperparameters, metric):
        self.told += 1
        if metric is not None and (self.parent is None or metric < self.parent[0]):
            self.parent = (metric, hyperparameters)
