"""Operations on what was learnt from what: evidence of checkpoints, ledgers of trials, keys that sign."""
