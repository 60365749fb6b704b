"""The agent's own key: requested once with an enrolment token, kept in a file that no other user may read."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path

import httpx

from detlab import loopback
from detlab.errors import AuthError, DetlabError, master_said
from detlab.launch.taskdir import read_object, write_json
from detlab.schemas.wire import EnrolReply, EnrolRequest
from detlab.token_text import one_word
from detlab.trust import is_refusal, split_enrolment
from detlab_agent.endpoints import Endpoints

_log = logging.getLogger(__name__)


class NotEnrolled(Exception):
    """There is no key and no (valid) enrolment token; the message says what to do."""


class MasterAway(Exception):
    """No answer from the master; worth another try."""


@dataclass
class KeyRing:
    """Holds the agent's key; gets a new one if there is none or the master does not know it.

    Args:
        path: File of the key, mode 0600.
        agent_id: This agent.
        endpoints: The master.
        enrolment_token_file: Holds the enrolment token; read when it is needed, never kept.
    """

    path: Path
    agent_id: str
    endpoints: Endpoints
    enrolment_token_file: Path | None = None

    def token(self) -> str:
        """Return the key.

        Raises:
            NotEnrolled: There is no key yet.
        """
        stored = read_object(self.path)
        if stored is None or stored.get("agent_id") != self.agent_id:
            raise NotEnrolled(f"agent {self.agent_id!r} has no key in {self.path}")
        return str(stored["token"])

    async def ensure(self) -> str:
        """Return the key, enrolling first if there is none; see `enrol` for the errors."""
        try:
            return self.token()
        except NotEnrolled:
            return await self.enrol()

    async def enrol(self) -> str:
        """Exchange the enrolment token for a key; keep and return it.

        Raises:
            NotEnrolled: No enrolment token, or the master refuses it.
            MasterAway: No answer.
        """
        token = await self._trusting(self._enrolment_token())
        request = EnrolRequest(agent_id=self.agent_id)
        try:
            trust = self.endpoints.trust()
            hooks = loopback.async_hooks(self.endpoints.enrol)
            async with httpx.AsyncClient(
                timeout=30.0, follow_redirects=False, verify=trust, event_hooks=hooks, trust_env=False
            ) as client:
                reply = await client.post(
                    self.endpoints.enrol,
                    content=request.model_dump_json(),
                    headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
                )
        except httpx.HTTPError as error:
            if is_refusal(error):
                raise NotEnrolled(str(self.endpoints.refused())) from error
            raise MasterAway(f"{self.endpoints.base}: {error or type(error).__name__}") from error
        said = None if reply.is_success else master_said(reply.content)
        if reply.status_code in {401, 403} and said is not None:
            raise NotEnrolled(f"the master refuses the enrolment token: {said['message']}")
        if not reply.is_success:
            raise MasterAway(f"{self.endpoints.enrol}: {said['message'] if said else f'status {reply.status_code}'}")
        try:
            answer = EnrolReply.model_validate_json(reply.content)
        except ValueError as error:
            raise MasterAway(f"{self.endpoints.enrol}: invalid enrolment reply: {error}") from error
        write_json(self.path, {"agent_id": self.agent_id, "token": answer.token}, durable=True)
        _log.info("enrolled as %s", self.agent_id)
        return answer.token

    async def _trusting(self, enrolment: str) -> str:
        """Pin the certificate that an enrolment string names, if it names one; return the token in it.

        Raises:
            NotEnrolled: The master presents another one.
            MasterAway: No answer.
        """
        try:
            token, fingerprint = split_enrolment(enrolment)
            if fingerprint is not None:
                await asyncio.to_thread(self.endpoints.pin, fingerprint)
        except DetlabError as error:
            raise NotEnrolled(str(error)) from error
        except OSError as error:
            raise MasterAway(f"{self.endpoints.base}: {error or type(error).__name__}") from error
        return token

    def _enrolment_token(self) -> str:
        if self.enrolment_token_file is None:
            raise NotEnrolled(
                f"agent {self.agent_id!r} is not enrolled: ask an admin for an enrolment token and give its file "
                "with --enrolment-token-file"
            )
        try:
            if self.enrolment_token_file.stat().st_mode & 0o077:
                _log.warning(
                    "other users can read %s and enrol agents with it: run chmod 600 on it",
                    self.enrolment_token_file,
                )
            text = self.enrolment_token_file.read_text(encoding="ascii")
            return one_word(text, str(self.enrolment_token_file))
        except AuthError as error:
            raise NotEnrolled(str(error)) from None
        except (OSError, UnicodeError) as error:
            raise NotEnrolled(f"no enrolment token: {error}") from error
