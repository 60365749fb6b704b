"""Parts of `bench/governance.py`: localisation, memorisation, search, text and overhead of governed training.

What is measured is `detlab.governance` and `detlab.pytorch.governance` as they are shipped; no gradient is routed here.
"""
