"""State machines of experiments, trials and allocations, pure: `step(state, event) -> Step(state, actions)`.

Three machines, driven by `detlab_hub.services`: `experiment` steers its trials, `trial` requests
allocations and ends, `allocation` is one attempt to run a trial on an agent. `table` holds the transitions
that all of them obey. Nothing here does I/O or reads a clock: events carry their time.
"""
