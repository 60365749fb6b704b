"""What trials and runs log beyond numbers; artifacts: named folders in versions, which runs use and make."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _add_media()
    _add_artifacts()


def _add_media() -> None:
    op.create_table(
        "media",
        sa.Column("id", ID, nullable=False),
        sa.Column("experiment_id", ID, nullable=True),
        sa.Column("trial_id", ID, nullable=True),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("caption", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("width", sa.Integer(), nullable=False),
        sa.Column("height", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiments.id"], name=op.f("fk_media_experiment_id")),
        sa.ForeignKeyConstraint(["trial_id"], ["trials.id"], name=op.f("fk_media_trial_id")),
        sa.ForeignKeyConstraint(["run_id"], ["tracked_runs.id"], name=op.f("fk_media_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_media")),
        sa.UniqueConstraint("run_id", "key", "step", "place", name=op.f("uq_media_run_id_key_step_place")),
        sa.UniqueConstraint("trial_id", "key", "step", "place", name=op.f("uq_media_trial_id_key_step_place")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_media_trial_id_step_id"), "media", ["trial_id", "step", "id"])
    op.create_index(op.f("ix_media_experiment_id_digest"), "media", ["experiment_id", "digest"])
    op.create_index(op.f("ix_media_run_id_step_id"), "media", ["run_id", "step", "id"])
    op.create_index(op.f("ix_media_run_id_digest"), "media", ["run_id", "digest"])


def _add_artifacts() -> None:
    op.create_table(
        "artifacts",
        sa.Column("id", ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("owner_groups", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.BigInteger(), nullable=True),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("last_version", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_artifacts")),
        sa.UniqueConstraint("owner", "name", name=op.f("uq_artifacts_owner_name")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_artifacts_name"), "artifacts", ["name"])
    op.create_index(op.f("ix_artifacts_workspace_id"), "artifacts", ["workspace_id"])
    op.create_table(
        "artifact_versions",
        sa.Column("id", ID, nullable=False),
        sa.Column("artifact_id", ID, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("references_count", sa.Integer(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["artifact_id"], ["artifacts.id"], name=op.f("fk_artifact_versions_artifact_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_artifact_versions")),
        sa.UniqueConstraint("artifact_id", "version", name=op.f("uq_artifact_versions_artifact_id_version")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "artifact_aliases",
        sa.Column("artifact_id", ID, nullable=False),
        sa.Column("alias", sa.Text(), nullable=False),
        sa.Column("version_id", ID, nullable=False),
        sa.ForeignKeyConstraint(["artifact_id"], ["artifacts.id"], name=op.f("fk_artifact_aliases_artifact_id")),
        sa.ForeignKeyConstraint(["version_id"], ["artifact_versions.id"], name=op.f("fk_artifact_aliases_version_id")),
        sa.PrimaryKeyConstraint("artifact_id", "alias", name=op.f("pk_artifact_aliases")),
    )
    op.create_index(op.f("ix_artifact_aliases_version_id"), "artifact_aliases", ["version_id"])
    op.create_table(
        "artifact_entries",
        sa.Column("version_id", ID, nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("artifact_id", ID, nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("uri", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["artifact_id"], ["artifacts.id"], name=op.f("fk_artifact_entries_artifact_id")),
        sa.ForeignKeyConstraint(["version_id"], ["artifact_versions.id"], name=op.f("fk_artifact_entries_version_id")),
        sa.PrimaryKeyConstraint("version_id", "path", name=op.f("pk_artifact_entries")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_artifact_entries_artifact_id_digest"), "artifact_entries", ["artifact_id", "digest"])
    op.create_table(
        "artifact_files",
        sa.Column("artifact_id", ID, nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["artifact_id"], ["artifacts.id"], name=op.f("fk_artifact_files_artifact_id")),
        sa.PrimaryKeyConstraint("artifact_id", "digest", name=op.f("pk_artifact_files")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "artifact_links",
        sa.Column("id", ID, nullable=False),
        sa.Column("version_id", ID, nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("experiment_id", sa.BigInteger(), nullable=True),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["version_id"], ["artifact_versions.id"], name=op.f("fk_artifact_links_version_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_artifact_links")),
        sa.UniqueConstraint("version_id", "run_id", "role", name=op.f("uq_artifact_links_version_id_run_id_role")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_artifact_links_run_id"), "artifact_links", ["run_id"])
    op.create_index(op.f("ix_artifact_links_experiment_id"), "artifact_links", ["experiment_id"])


def downgrade() -> None:
    for table in (
        "artifact_links",
        "artifact_files",
        "artifact_entries",
        "artifact_aliases",
        "artifact_versions",
        "artifacts",
    ):
        op.drop_table(table)
    op.drop_table("media")
