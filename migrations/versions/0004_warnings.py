"""What the user should know about a run that succeeded, such as that a prompt was cut.

Revises: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("warnings", sa.JSON(none_as_null=True)))


def downgrade() -> None:
    # In place on both databases: batch mode would copy the table on SQLite, and drop one that edges refer to.
    op.execute(sa.text("alter table runs drop column warnings"))
