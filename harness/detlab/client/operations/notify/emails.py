"""Operations on the addresses to which alerts are sent."""

from __future__ import annotations

from detlab.client.operations.experiments import one
from detlab.client.transport.calls import Call, Flow, model, valid_request
from detlab.schemas.wire.notify.emails import ConfirmEmail, EmailView, SetEmail, SetUsersEmail

_OWN, _OF_USERS = "alerts/email", "alerts/emails"


def email(user: str | None = None) -> Flow[EmailView]:
    """Fetch the caller's address, or a user's."""
    if user is None:
        return one(Call("GET", _OWN, parse=model(EmailView)))
    return one(Call("GET", _OF_USERS, params={"user": user}, parse=model(EmailView)))


def set_email(address: str, user: str | None = None) -> Flow[EmailView]:
    """Have a code sent to an address of the caller, or set a user's without one."""
    with valid_request():
        body = SetEmail(address=address) if user is None else SetUsersEmail(user=user, address=address)
    path = _OWN if user is None else _OF_USERS
    return one(Call("PUT", path, json=body, parse=model(EmailView), again=False))


def confirm_email(code: str) -> Flow[EmailView]:
    """Confirm the caller's address by the code that came."""
    with valid_request():
        body = ConfirmEmail(code=code)
    return one(Call("POST", f"{_OWN}/confirm", json=body, parse=model(EmailView), again=False))


def remove_email(user: str | None = None) -> Flow[EmailView]:
    """Remove the caller's address, or a user's."""
    if user is None:
        return one(Call("DELETE", _OWN, parse=model(EmailView)))
    return one(Call("DELETE", _OF_USERS, params={"user": user}, parse=model(EmailView)))
