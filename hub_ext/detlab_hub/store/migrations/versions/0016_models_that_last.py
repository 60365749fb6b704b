"""Models that last: collection with a trash and bookmarks, the model registry, webhooks, quotas of bytes."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_SIZES = "ix_checkpoints_experiment_id_state_size"


def upgrade() -> None:
    _add_collection()
    _add_registry()
    _add_quotas()


def _add_collection() -> None:
    op.add_column("experiments", sa.Column("gc_policy", sa.Text(), nullable=True))
    op.add_column("experiments", sa.Column("gc_at", sa.Double(), nullable=True))
    op.add_column("experiments", sa.Column("gc_task", sa.Text(), nullable=True))
    op.create_index(op.f("ix_experiments_gc_at"), "experiments", ["gc_at"])
    op.add_column("checkpoint_removals", sa.Column("due_at", sa.Double(), nullable=False, server_default="0"))
    op.add_column("checkpoint_removals", sa.Column("begun_at", sa.Double(), nullable=True))
    op.add_column("checkpoint_removals", sa.Column("was", sa.Text(), nullable=False, server_default=""))
    op.add_column("checkpoint_removals", sa.Column("bytes", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("checkpoint_removals", sa.Column("by_task", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("checkpoint_removals", sa.Column("failure", sa.Text(), nullable=False, server_default=""))
    op.create_index(op.f("ix_checkpoint_removals_due_at"), "checkpoint_removals", ["due_at"])
    # What is there was begun by an earlier version: it cannot be undone.
    op.execute("UPDATE checkpoint_removals SET begun_at = requested_at")
    op.create_table(
        "checkpoint_bookmarks",
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["uuid"], ["checkpoints.uuid"], name=op.f("fk_checkpoint_bookmarks_uuid")),
        sa.PrimaryKeyConstraint("uuid", "name", name=op.f("pk_checkpoint_bookmarks")),
    )
    op.create_table(
        "storage_freed",
        sa.Column("experiment_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("experiment_id", "owner", name=op.f("pk_storage_freed")),
    )
    op.create_index(op.f("ix_storage_freed_owner"), "storage_freed", ["owner"])


def _add_registry() -> None:
    op.add_column("checkpoints", sa.Column("environment", sa.Text(), nullable=True))
    op.create_table(
        "environments",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("packages", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_environments")),
    )
    op.create_table(
        "models",
        sa.Column("id", ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("notes", sa.Text(), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("labels", sa.Text(), nullable=False),
        sa.Column("last_version", sa.Integer(), nullable=False),
        sa.Column("last_semver", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("archived_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models")),
        sa.UniqueConstraint("owner", "name", name=op.f("uq_models_owner_name")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_models_name"), "models", ["name"])
    op.create_table(
        "model_grants",
        sa.Column("model_id", ID, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("write", sa.Boolean(), nullable=False),
        sa.Column("granted_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_model_grants_model_id")),
        sa.PrimaryKeyConstraint("model_id", "kind", "name", name=op.f("pk_model_grants")),
    )
    op.create_index(op.f("ix_model_grants_kind_name"), "model_grants", ["kind", "name"])
    op.create_table(
        "model_versions",
        sa.Column("id", ID, nullable=False),
        sa.Column("model_id", ID, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("semver", sa.Text(), nullable=True),
        sa.Column("checkpoint_uuid", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.Column("notes", sa.Text(), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("format", sa.Text(), nullable=False),
        sa.Column("lineage", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_model_versions_model_id")),
        sa.ForeignKeyConstraint(
            ["checkpoint_uuid"], ["checkpoints.uuid"], name=op.f("fk_model_versions_checkpoint_uuid")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model_versions")),
        sa.UniqueConstraint("model_id", "version", name=op.f("uq_model_versions_model_id_version")),
        sa.UniqueConstraint("model_id", "checkpoint_uuid", name=op.f("uq_model_versions_model_id_checkpoint_uuid")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_model_versions_checkpoint_uuid"), "model_versions", ["checkpoint_uuid"])
    op.create_table(
        "version_metrics",
        sa.Column("version_id", ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["version_id"], ["model_versions.id"], name=op.f("fk_version_metrics_version_id")),
        sa.PrimaryKeyConstraint("version_id", "name", name=op.f("pk_version_metrics")),
        sqlite_with_rowid=False,
    )
    op.create_index(
        op.f("ix_version_metrics_name_value_version_id"), "version_metrics", ["name", "value", "version_id"]
    )
    op.create_table(
        "model_facts",
        sa.Column("id", ID, nullable=False),
        sa.Column("model_id", ID, nullable=False),
        sa.Column("version_id", ID, nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("number", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_model_facts_model_id")),
        sa.ForeignKeyConstraint(["version_id"], ["model_versions.id"], name=op.f("fk_model_facts_version_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model_facts")),
        sqlite_autoincrement=True,
    )
    for columns in (
        ["name", "text", "version_id", "model_id"],
        ["name", "number", "version_id", "model_id"],
        ["version_id", "name", "number"],
        ["model_id", "version_id"],
    ):
        op.create_index(op.f(f"ix_model_facts_{'_'.join(columns)}"), "model_facts", columns)
    op.create_table(
        "version_labels",
        sa.Column("model_id", ID, nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("version_id", ID, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_version_labels_model_id")),
        sa.ForeignKeyConstraint(["version_id"], ["model_versions.id"], name=op.f("fk_version_labels_version_id")),
        sa.PrimaryKeyConstraint("model_id", "label", name=op.f("pk_version_labels")),
    )
    op.create_index(op.f("ix_version_labels_version_id"), "version_labels", ["version_id"])
    op.create_index(op.f("ix_version_labels_label"), "version_labels", ["label"])
    op.create_table(
        "label_moves",
        sa.Column("id", ID, nullable=False),
        sa.Column("model_id", ID, nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("from_version", sa.Integer(), nullable=True),
        sa.Column("to_version", sa.Integer(), nullable=True),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_label_moves_model_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_label_moves")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_label_moves_model_id_id"), "label_moves", ["model_id", "id"])
    op.create_table(
        "webhook_calls",
        sa.Column("id", ID, nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("due_at", sa.Double(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_calls")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_webhook_calls_due_at"), "webhook_calls", ["due_at"])


def _add_quotas() -> None:
    op.create_table(
        "storage_quotas",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.Column("set_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "name", name=op.f("pk_storage_quotas")),
    )
    op.create_index(op.f(_SIZES), "checkpoints", ["experiment_id", "state", "size"])


def downgrade() -> None:
    op.drop_index(op.f(_SIZES), table_name="checkpoints")
    op.drop_table("storage_quotas")
    for table in (
        "webhook_calls",
        "label_moves",
        "version_labels",
        "model_facts",
        "version_metrics",
        "model_versions",
        "model_grants",
        "models",
        "environments",
    ):
        op.drop_table(table)
    op.drop_column("checkpoints", "environment")
    op.drop_table("storage_freed")
    op.drop_table("checkpoint_bookmarks")
    op.drop_index(op.f("ix_checkpoint_removals_due_at"), "checkpoint_removals")
    for column in ("failure", "by_task", "bytes", "was", "begun_at", "due_at"):
        op.drop_column("checkpoint_removals", column)
    op.drop_index(op.f("ix_experiments_gc_at"), "experiments")
    for column in ("gc_task", "gc_at", "gc_policy"):
        op.drop_column("experiments", column)
