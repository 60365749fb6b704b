"""Who has sent which bundle: whether one is there is told to those who have it, and to nobody else.

Of each bundle only its first sender was noted. Who sent the same bytes later has it by the experiments that run it, or
sends it once more.
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "bundle_uploads",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["digest"], ["bundles.digest"], name=op.f("fk_bundle_uploads_digest")),
        sa.PrimaryKeyConstraint("digest", "name", name=op.f("pk_bundle_uploads")),
    )
    op.execute("INSERT INTO bundle_uploads (digest, name, created_at) SELECT digest, owner, created_at FROM bundles")


def downgrade() -> None:
    op.drop_table("bundle_uploads")
