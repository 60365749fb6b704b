"""Evidence of what checkpoints were learnt from: the key that signs, the ledger, and verification.

What a policy is, how a chain is hashed and when a checkpoint is refused is in `detlab.governance`, and stays there.
"""
