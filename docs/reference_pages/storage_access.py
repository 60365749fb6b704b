"""The page that says who opens which checkpoint storage, from the table that decides it."""

from __future__ import annotations

from reference_pages.markdown import page, table


def storage_access() -> str:
    """The page that says who opens which checkpoint storage, from the table that decides it."""
    from detlab_hub.services.checkpoints.stores import ACCESS, NamedStore, StoreOperation, Who

    intro = """
A `checkpoint_storage` block is a user's word, so that the master calls nobody whom only a block names. It opens file
systems that it sees (each file must belong to the uid of its user), and the cluster's own object stores:

- the operator names them: `c.DetHub.checkpoint_storage`, and further ones in `c.DetHub.checkpoint_stores`;
- a block is one of them if type, bucket (container) and endpoint (account, connection string) are the operator's, every
  other key is the operator's or missing, and its prefix is the operator's or below it, compared by whole parts;
- what is opened then is the operator's own block, of which only the prefix is the user's.

Every other store is opened by tasks with their owner's rights, and by people with their own keys.
"""
    rows = [
        (str(operation), *(_said(ACCESS[operation][store], Who.NOBODY) for store in NamedStore))
        for operation in StoreOperation
    ]
    told = """
- A task of the owner (garbage collection's) removes what the master does not; a store that does not answer holds up
  that task alone, and it is tried again an hour later.
- Where nobody looks at a commit, the manifest of the trial counts, which made it of what it has stored. Where nobody
  looks at an undelete, the mark alone is taken back: `det checkpoint verify UUID --mode task` looks then.
- What is not downloaded through the master is refused with `storage.not_the_clusters`. With `--mode task` a task
  without slots reads it for the owner, with the keys of their block: it verifies each file, and hands it over
  as an output of at most `c.DetHub.outputs_limit_mb` in all. Nobody else may start it, as it holds these keys.
- `det storage check` compares a user's storages with what the master knows, by a task of theirs, whosever the store is:
  with their keys it sees what they may see. The master tells that task of its owner's checkpoints only.
- Whoever commits or deletes, task or master, first looks at the record of who owns what is in the prefix:
  see [back up and restore](../how-to/back-up-and-restore.md#a-copy-leaves-the-originals-checkpoints-alone).
- `det checkpoint download UUID`
  reads directly on its own where this machine has keys and the address is the cloud's own or that of
  `AWS_ENDPOINT_URL`; `--mode direct` sends your keys to whatever address the block names, so look at it first.
- Of the cluster's own store the master waits 15 s for a request, and repeats nothing of its answers but the status and
  known codes. How long one user can hold a worker is in [limits](limits.md#shared-workers).
- Other servers than stores are called by one client: see [security](../explanation/security.md#in-the-master).
"""
    return page(
        "Who opens a checkpoint storage",
        intro,
        table(("operation", *(str(store) for store in NamedStore)), rows),
        "## What follows\n" + told,
    )


def _said(who: object, nobody: object) -> str:
    return "–" if who is nobody else str(who)
