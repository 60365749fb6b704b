"""What W&B's client writes on the machine where a run is: `wandb/offline-run-…`, and `wandb/run-…` of runs online.

The log of a run, `run-ID.wandb`, is LevelDB's log format with zlib's CRC-32, and its records are protobuf messages.
Both are documented, and the few fields that are needed here have kept their numbers since they were published, so that
they are read by the two small modules `log` and `records`: no package of W&B's is needed.

Formats: https://github.com/google/leveldb/blob/main/doc/log_format.md,
https://protobuf.dev/programming-guides/encoding, https://github.com/wandb/wandb (wandb/proto/wandb_internal.proto).
"""
