"""Governed learning: keys that sign, matrices, the ledger, and signed statements about checkpoints."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "signing_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("public_key", sa.Text(), nullable=False),
        sa.Column("installation", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("made_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_signing_keys")),
    )
    op.create_table(
        "governance_matrices",
        sa.Column("s_hash", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("trial_id", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("s_hash", name=op.f("pk_governance_matrices")),
    )
    op.create_index(op.f("ix_governance_matrices_trial_id"), "governance_matrices", ["trial_id"])
    op.create_table(
        "governance_ledger",
        sa.Column("id", ID, nullable=False),
        sa.Column("trial_id", sa.BigInteger(), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("checkpoint_uuid", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("previous", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("envelope", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_governance_ledger")),
        sa.UniqueConstraint("trial_id", "index", name=op.f("uq_governance_ledger_trial_id_index")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_governance_ledger_checkpoint_uuid"), "governance_ledger", ["checkpoint_uuid"])
    op.create_table(
        "governance_evidence",
        sa.Column("checkpoint_uuid", sa.Text(), nullable=False),
        sa.Column("trial_id", sa.BigInteger(), nullable=False),
        sa.Column("experiment_id", sa.BigInteger(), nullable=False),
        sa.Column("steps_completed", sa.BigInteger(), nullable=False),
        sa.Column("manifest_digest", sa.Text(), nullable=False),
        sa.Column("envelope", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("checkpoint_uuid", name=op.f("pk_governance_evidence")),
    )
    op.create_index(op.f("ix_governance_evidence_trial_id"), "governance_evidence", ["trial_id"])
    op.create_index(op.f("ix_governance_evidence_experiment_id"), "governance_evidence", ["experiment_id"])


def downgrade() -> None:
    for table in ("governance_evidence", "governance_ledger", "governance_matrices", "signing_keys"):
        op.drop_table(table)
