"""Who has which uid, for administrators: whose files those on a node or a storage are."""

from __future__ import annotations

from sqlalchemy.orm import Session

from detlab.errors import Forbidden
from detlab.schemas.jobwire import UidList, UidView
from detlab_hub.services.kernel.callers import Caller
from detlab_hub.services.kernel.shell import Shell
from detlab_hub.store.queries import uids


class UserUids:
    """The uids that are assigned; `services.uids` assigns them."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def list(self, caller: Caller) -> UidList:
        """All of them.

        Raises:
            Forbidden: The caller is not an administrator.
        """
        if not caller.admin:
            raise Forbidden("only administrators may see the uids of users")

        def look(s: Session) -> UidList:
            rows = uids.everyone(s)
            return UidList(
                items=[UidView(user=row.owner, uid=row.uid, account=row.account, since=row.since) for row in rows]
            )

        return await self._shell.read(look)
