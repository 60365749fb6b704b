"""Routes of evidence: what checkpoints were learnt from, ledgers of trials, and the keys that sign."""

from __future__ import annotations

from pydantic import Field

from detlab.schemas.wire import Wire
from detlab.schemas.wire.governance.evidence import (
    EvidenceView,
    LearningView,
    LedgerPage,
    MatrixView,
    RestoreSource,
    RevokeKey,
    RotateKey,
    SigningKeyList,
    WithdrawnSourceList,
    WithdrawnSourceView,
    WithdrawSource,
)
from detlab_hub.core.rights import Action
from detlab_hub.services.governance.keys import SigningKeys
from detlab_hub.services.governance.reading import EvidenceReading
from detlab_hub.services.registry.withdrawals import Withdrawals
from detlab_hub.web.base import Guarded
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


class AfterQuery(Wire):
    """Where a page begins."""

    after: int = Field(-1, ge=-1, le=2**31)
    """Only entries with a greater index."""


@route("checkpoints/{uuid}/evidence", relayed=True)
class EvidenceOf(Guarded):
    """The evidence of a checkpoint."""

    @needs("read", cross_site="xsrf")
    async def get(self, uuid: str) -> EvidenceView:
        """Return the signed statement of what a checkpoint was learnt from, and what is wrong with it."""
        return await self.services[EvidenceReading].of_checkpoint(self.person, uuid)


@route("trials/{trial_id}/ledger", relayed=True)
class Ledger(Guarded):
    """The ledger of a trial."""

    @needs("read", cross_site="xsrf")
    async def get(self, trial_id: int, query: AfterQuery) -> LedgerPage:
        """Return entries of a trial's ledger, in order."""
        return await self.services[EvidenceReading].ledger(self.person, trial_id, query.after)


@route("trials/{trial_id}/governance", relayed=True)
class Learning(Guarded):
    """What each source may train in a trial."""

    @needs("read", cross_site="xsrf")
    async def get(self, trial_id: int) -> LearningView:
        """Return the matrices S and D of a trial, as they are shown."""
        return await self.services[EvidenceReading].learning(self.person, trial_id)


@route("trials/{trial_id}/matrices/{s_hash}")
class MatrixOf(Guarded):
    """A matrix that a ledger names."""

    @needs("read", cross_site="xsrf")
    async def get(self, trial_id: int, s_hash: str) -> MatrixView:
        """Return what each source may train, as a trial has recorded it."""
        return await self.services[EvidenceReading].matrix(self.person, trial_id, s_hash)


@route("signing-keys")
class SigningKeyRoute(Guarded):
    """The keys that sign evidence."""

    @needs("read", cross_site="xsrf")
    async def get(self) -> SigningKeyList:
        """List the public keys of the cluster, with which anyone can check a signature."""
        return await self.services[SigningKeys].page()

    @needs("admin", cross_site="xsrf", action=Action.SIGNING_KEY_ROTATE)
    async def post(self, body: RotateKey) -> SigningKeyList:
        """Sign with a new key from now on; what the old ones have signed holds."""
        return await self.services[SigningKeys].rotate(self.person)


@route("signing-keys/{key}/revoke")
class KeyRevocation(Guarded):
    """A key that is not to be trusted."""

    @needs("admin", cross_site="xsrf", action=Action.SIGNING_KEY_REVOKE)
    async def post(self, key: str, body: RevokeKey) -> SigningKeyList:
        """Declare that nothing which a key has signed holds any more."""
        return await self.services[SigningKeys].revoke(self.person, key, body)


@route("withdrawn-sources")
class WithdrawnSourcesRoute(Guarded):
    """Sources that may not be trained on any more."""

    @needs("read", cross_site="xsrf")
    async def get(self) -> WithdrawnSourceList:
        """List what is withdrawn in the cluster and in the caller's workspaces, with the versions that hold it."""
        return await self.services[Withdrawals].page(self.person)

    @needs("write", cross_site="xsrf", action=Action.SOURCE_WITHDRAW)
    async def post(self, body: WithdrawSource) -> WithdrawnSourceView:
        """Withdraw a source: what trains on it is paused, and nothing starts or is promoted that has learnt from it."""
        return await self.services[Withdrawals].withdraw(self.person, body)


@route("withdrawn-sources/undo")
class WithdrawalUndone(Guarded):
    """A withdrawal that is taken back."""

    @needs("write", cross_site="xsrf", action=Action.SOURCE_RESTORE)
    async def post(self, body: RestoreSource) -> WithdrawnSourceView:
        """Take a withdrawal back; what was paused goes on when its owners say so."""
        return await self.services[Withdrawals].undo(self.person, body)
