"""`heterosag identity` and `heterosag directory`: users' keys, and everybody's directory of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heterosag.cli.application import Command, app
from heterosag.cli.options import Json
from heterosag.errors import UsageError

if TYPE_CHECKING:
    from heterosag.plan import User

__all__ = ["directory", "identity"]


@app.command(cls=Command, short_help="Print an identity's public key, or make one.")
def identity(
    key_file: Annotated[Path, typer.Argument(help="A private key's file: Ed25519, or the key of a Flower node.")],
    make: Annotated[bool, typer.Option("--make", help="Make a fresh key in a new file first.")] = False,
    as_json: Json = False,
) -> None:
    """Print the public key of an identity, for everybody's directory."""
    from heterosag.storage.identities import load_identity, make_identity

    public = (make_identity if make else load_identity)(key_file).public.hex()
    typer.echo(json.dumps({"public": public}) if as_json else public)


@app.command(cls=Command, short_help="Make, check and change everybody's directory.")
def directory(
    file: Annotated[Path, typer.Argument(help="The directory: a JSON file of users and public keys.")],
    make: Annotated[bool, typer.Option("--make", help="Make a new directory of the users that are added.")] = False,
    add: Annotated[
        list[str] | None, typer.Option(help="A user who is not in it yet: USER=KEY, in hex or a file with that.")
    ] = None,
    rotate: Annotated[
        list[str] | None, typer.Option(help="A user who is in it, with the key that replaces the old one: USER=KEY.")
    ] = None,
    revoke: Annotated[list[str] | None, typer.Option(help="A user who is taken out of it.")] = None,
    mine: Annotated[
        list[str] | None,
        typer.Option(help="Check that it has the key of this private key's file for a user: USER=KEY_FILE."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check everybody's directory and print its digest, for users to compare; make it, and change who is in it."""
    from heterosag.storage import directories
    from heterosag.storage.identities import load_directory

    added: dict[User, bytes] = {user: directories.read_public_key(key) for user, key in _pairs("add", add).items()}
    rotated: dict[User, bytes] = {
        user: directories.read_public_key(key) for user, key in _pairs("rotate", rotate).items()
    }
    if make and (rotate or revoke or not added):
        raise UsageError("--make takes the users of a new directory with --add USER=KEY, and no other change")
    if make or added or rotated or revoke:
        directories.edit_directory(file, add=added, rotate=rotated, revoke=revoke or [], new=make)
    known = load_directory(file)
    for user, key_file in _pairs("mine", mine).items():
        directories.check_own_key(known, user, Path(key_file))
    keys, digest = {str(user): key.hex() for user, key in known.items()}, directories.directory_digest(known).hex()
    if as_json:
        print(json.dumps({"users": len(keys), "digest": digest, "keys": keys}, indent=2))
        return
    for name, public in keys.items():
        print(public, name)
    print(f"{len(keys)} users, digest {digest}")


def _pairs(name: str, given: Sequence[str] | None) -> dict[str, str]:
    """`USER=VALUE` of a flag that may come often, each user once."""
    found: dict[str, str] = {}
    for text in given or ():
        user, equals, value = text.partition("=")
        if not (user and equals and value):
            form = "USER=KEY_FILE" if name == "mine" else "USER=KEY"
            raise UsageError(f"--{name} takes {form}, not {text!r}")
        if user in found:
            raise UsageError(f"--{name} names user {user!r} twice")
        found[user] = value
    return found
