"""`det user`, `det login`, `det logout`, `det version`."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from detlab.cli.invocation import Invocation, confirmed, csv_option, json_option, pass_invocation, yes_option
from detlab.cli.loading import Lazy, LazyGroup
from detlab.cli.output.printing import Shown, clean, facts, moment, note, say, say_json, table
from detlab.errors import DetlabError

if TYPE_CHECKING:
    from detlab.client.transport.hub import HubAccounts

COMMANDS = {
    "login": "Log in: store the token of a cluster.",
    "logout": "Log out: delete the stored token of a cluster.",
    "user": "Users: whoami, settings; list, create, edit, remove (administrators).",
    "version": "Show the versions of this client and of the master.",
}

MOST_TOKEN = 10_000


_SETTINGS = Lazy(
    "Your own settings: colours, times, notifications.", "detlab.cli.commands.notify.user_settings:settings"
)


@click.group(cls=LazyGroup, lazy={"settings": _SETTINGS}, short={"ls": "list"})
def user() -> None:
    """Users. The Hub has them: these commands ask it, with your own token.

    \b
    Examples:
      det user whoami
      det user create ada
      det user settings set time_zone Europe/Berlin
    """


@user.command(name="list")
@csv_option
@json_option
@pass_invocation
def list_users(invocation: Invocation) -> None:
    """List the Hub's users whom you may see: all of them for administrators.

    \b
    Example:
      det user list
    """
    from detlab.cli.commands.shared.administrators import administered
    from detlab.client.transport.hub import administers

    with _hub(invocation) as hub:
        found, groups = hub.users(), hub.admin_groups()
    of_detlab = {one["name"]: administers(one, groups) for one in found}
    if invocation.as_json:
        shown = ("name", "admin", "groups", "last_activity")
        rows = [{name: one.get(name) for name in shown} | {"detlab_admin": of_detlab[one["name"]]} for one in found]
        say_json(rows)
        return
    table(
        ("User", "Admin", "Groups", "Last seen"),
        [
            (
                one["name"],
                administered(bool(one.get("admin")), of_detlab[one["name"]]),
                ", ".join(one.get("groups") or ()),
                _seen(one),
            )
            for one in found
        ],
    )


def _seen(one: Mapping[str, Any]) -> Shown:
    """Return when a user was last seen: the Hub says it in ISO 8601 and UTC."""
    text = one.get("last_activity")
    return moment(datetime.fromisoformat(text).timestamp() if text else None)


@user.command(name="create")
@click.argument("name")
@click.option("--admin", is_flag=True, help="An administrator of the Hub and of detlab.")
@json_option
@pass_invocation
def create_user(invocation: Invocation, name: str, admin: bool) -> None:
    """Add a user to the Hub (administrators). How they log in is the Hub's authenticator's.

    With `det up` a password of their own is made where the configuration names them: see the how-to "Add a user".

    \b
    Examples:
      det user create ada
      det user create grace --admin
    """
    from detlab.cli.commands.shared.administrators import make_administrator

    with _hub(invocation) as hub:
        made = hub.make_user(name, admin=admin)
        if admin:
            make_administrator(hub, made["name"])
    told = {"name": made["name"], "admin": made["admin"], "detlab_admin": admin}
    invocation.tell(told, f"Created user {clean(made['name'])}{', an administrator' if admin else ''}.")


@user.command(name="edit")
@click.argument("name")
@click.option(
    "--admin/--no-admin",
    default=None,
    help="Make them an administrator of the Hub and of detlab, or an ordinary user again.",
)
@click.option("--name", "new_name", metavar="NEW", help="Give them another name. Their work stays with the old one.")
@json_option
@pass_invocation
def edit_user(invocation: Invocation, name: str, admin: bool | None, new_name: str | None) -> None:
    """Change a user of the Hub (administrators).

    --admin also puts them into the Hub's group detlab-admins, whose members administer detlab; --no-admin takes them
    out of it. Their tokens with all their permissions follow within half a minute. A browser has to log out and in to
    become an administrator's, and a token that was made for certain permissions never gets more.

    \b
    Examples:
      det user edit ada --admin
      det user edit ada --no-admin
    """
    changes = {key: value for key, value in (("admin", admin), ("name", new_name)) if value is not None}
    if not changes:
        raise click.UsageError("say what to change: --admin, --no-admin or --name")
    from detlab.cli.commands.shared.administrators import TAKES_EFFECT, make_administrator, still_administers

    known_as = new_name or name
    with _hub(invocation) as hub:
        if admin is False:  # first: who edits themselves cannot do that once the Hub's own right is gone
            hub.unmake_administrator(name)
        hub.edit_user(name, **changes)
        if admin:
            make_administrator(hub, known_as)
        still = still_administers(hub, known_as) if admin is False else False
    invocation.tell(
        {"name": known_as, **changes, **({} if admin is None else {"detlab_admin": admin or still})},
        f"Changed user {clean(name)}.{'' if admin is None else f' {TAKES_EFFECT[admin]}'}",
    )
    if still:
        note(
            f"{clean(known_as)} still administers detlab: the Hub's configuration gives them that by name, as to the "
            "operator of det up, or by another group. Change it there."
        )


@user.command(name="remove")
@click.argument("name")
@yes_option
@json_option
@pass_invocation
def remove_user(invocation: Invocation, name: str, yes: bool) -> None:
    """Remove a user from the Hub, with their tokens (administrators). Their experiments and models stay.

    Whether they can log in again, and are added again by that, the Hub's authenticator decides: see `allowed_users`.

    \b
    Example:
      det user remove ada
    """
    confirmed(f"Remove user {clean(name)} from the Hub?", yes=yes, deed="removing")
    with _hub(invocation) as hub:
        hub.remove_user(name)
    invocation.tell({"removed": name}, f"Removed user {clean(name)}.")


def _hub(invocation: Invocation) -> HubAccounts:
    from detlab.client.transport.hub import HubAccounts

    return HubAccounts(invocation.client.address)


@user.command()
@json_option
@pass_invocation
def whoami(invocation: Invocation) -> None:
    """Show the user of the token, and its permissions.

    \b
    Example:
      det user whoami
    """
    client = invocation.client
    found = client.whoami()
    if invocation.as_json:
        say_json({**found.model_dump(mode="json"), "url": client.address.url, "found_by": client.address.source})
        return
    facts(
        [
            ("user", found.name + (" (administrator)" if found.admin else "")),
            ("scopes", ", ".join(found.scopes)),
            ("cluster", client.address.url),
            ("found by", client.address.source),
        ]
    )


@user.command()
@csv_option
@json_option
@pass_invocation
def uids(invocation: Invocation) -> None:
    """List the uids under which users' tasks run, the same on all nodes (administrators).

    \b
    Example:
      det user uids
    """
    from detlab.client.operations import jobs

    found = invocation.client.session.run(jobs.uids())
    if invocation.answered(found):
        return
    rows = [(item.user, item.uid, "account" if item.account else "", moment(item.since)) for item in found]
    table(("User", "uid", "Of", "Since"), rows, right=("uid",))


@click.command()
@click.argument("url")
@click.option(
    "--token-file",
    type=click.File("r"),
    metavar="FILE",
    help="File that holds the token; `-` reads standard input. By default, prompt for the token.",
)
@click.option("--user", "name", metavar="NAME", help="Log in with this user's password; a token is made of it.")
@click.option(
    "--password-file",
    type=click.File("r"),
    metavar="FILE",
    help="With --user: file that holds the password; `-` reads standard input. By default, prompt for it.",
)
@click.option(
    "--fingerprint",
    metavar="SHA256",
    help="Fingerprint of the master's certificate, if no known authority signed it: no other certificate is accepted.",
)
@click.option(
    "--certificate",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The certificate itself (PEM), instead of its fingerprint.",
)
@json_option
def login(
    url: str,
    token_file: IO[str] | None,
    name: str | None,
    password_file: IO[str] | None,
    fingerprint: str | None,
    certificate: Path | None,
) -> None:
    """Log in to the cluster at URL: check the token and store it for this user.

    Create a token on the Hub's page /hub/token. It is stored in a file that only you can read. It is never an argument,
    because other users can see those. With --user, the Hub makes a token for a password, where its authenticator takes
    passwords; the token is good for a week, and the password is kept nowhere.

    \b
    Examples:
      det login https://hub.example.org
      det login https://node-1:8642 --fingerprint sha256:…
      det login http://127.0.0.1:8642 --token-file .detlab/secrets/user_token
      det user login https://hub.example.org --user ada
      echo "$TOKEN" | det login https://hub.example.org --token-file -
    """
    from detlab.cli.commands.certificates import chosen_pin
    from detlab.client.client import Client
    from detlab.client.transport.discovery import ClusterAddress, find_cluster, service_url
    from detlab.client.transport.logins import Logins

    address = service_url(url)
    pin = chosen_pin(address, fingerprint, certificate) or find_cluster(address).certificate
    if name is None and password_file is not None:
        raise click.UsageError("--password-file goes with --user NAME")
    if name is not None and token_file is not None:
        raise click.UsageError("give --user, or --token-file, not both")
    token = _token(token_file, address) if name is None else _by_password(address, name, password_file, pin)
    with Client(address=ClusterAddress(address, token, "the given address", certificate=pin)) as client:
        found = client.whoami()
    logins = Logins.default()
    logins.store(address, token, pin)
    if click.get_current_context().ensure_object(Invocation).as_json:
        say_json({"user": found.name, "url": address, "file": str(logins.path)})
    else:
        say(f"Logged in to {address} as {clean(found.name)}.")


def _by_password(address: str, name: str, file: IO[str] | None, pin: str | None) -> str:
    """Return a token that the Hub makes for a user's password."""
    from detlab.client.transport.password_login import token_by_password

    if file is not None:
        password = file.read(MOST_TOKEN).rstrip("\r\n")
    elif sys.stdin.isatty():
        password = getpass.getpass(f"Password of {clean(name)}: ")
    else:
        raise click.UsageError(
            "standard input is no terminal to type the password in: add --password-file FILE, or - for standard input"
        )
    if not password:
        raise DetlabError("the password is empty", hint="Without a password, give a token: /hub/token")
    from detlab.client.transport.discovery import ClusterAddress

    return token_by_password(ClusterAddress(address, "", "the given address", certificate=pin), name, password)


def _token(file: IO[str] | None, address: str) -> str:
    if file is not None:
        token = file.read(MOST_TOKEN).strip()
    elif sys.stdin.isatty():
        prefix = address.removesuffix("/services/detlab/")
        note(f"Make a token here: {prefix}/hub/token")
        token = getpass.getpass("Token: ").strip()
    else:
        raise click.UsageError(
            "standard input is not a terminal to type the token in: add --token-file FILE, or - for standard input"
        )
    if not token or len(token.split()) != 1:
        raise DetlabError("invalid token: a token is one word", hint="Make one at the Hub's page /hub/token")
    return token


@click.command()
@click.argument("url", required=False)
def logout(url: str | None) -> None:
    """Log out: delete the stored token of a cluster (default: the last login).

    \b
    Examples:
      det logout
      det user logout https://hub.example.org
    """
    from detlab.client.transport.discovery import service_url
    from detlab.client.transport.logins import Logins

    forgotten = Logins.default().forget(service_url(url) if url else None)
    say("Logged out." if forgotten else "Not logged in.")


@click.command()
@json_option
@pass_invocation
def version(invocation: Invocation) -> None:
    """Show the versions of this client and of the master, if one answers.

    \b
    Example:
      det version
    """
    from detlab.client.transport.version import client_version

    here = client_version()
    master, reason = None, None
    try:
        master = invocation.client.get_cluster()
    except DetlabError as error:
        reason = error.message
    if invocation.as_json:
        told = {"version": master.version, "url": invocation.client.address.url} if master else None
        say_json({"client": here, "master": told})
        return
    say(f"client  {here}")
    if master is None:
        say(f"master  none ({clean(reason)})")
        return
    say(f"master  {clean(master.version)} at {clean(invocation.client.address.url)}")
    if master.version != here:
        note("Client and master differ: install the same version on both if something is not understood.")


user.add_command(login)
user.add_command(logout)
