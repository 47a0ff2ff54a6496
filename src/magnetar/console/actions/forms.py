"""Tokens of forms, and what a browser sends of them.

A page of another site can have its reader's browser send a form, but cannot read the token that ours has: no page
can read another site's. A token is bound to the login that its form was shown to, to one action, to an hour, and to
one use: sent twice, by a double click or a reload, it is refused the second time. That a token is used up stands in
the metadata store for as long as it lasts, for the second time may come to another worker or broker.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable, Mapping
from urllib.parse import parse_qsl

from cryptography.fernet import InvalidToken

from magnetar.console.session import Sessions
from magnetar.metadata import (
    ANY,
    MUST_NOT_EXIST,
    BadVersion,
    Delete,
    MetadataError,
    MetadataStore,
    NotFound,
    Put,
)
from magnetar.pulsar.rest.request import RestError

LASTS_S = 3600
MAX_FORM_BYTES = 2 << 20
_MOST_FIELDS = 100
_USED = "/magnetar/console-forms"
_SWEPT = 50
"""Tokens that are forgotten with each one that is used up."""


class FormTokens:
    """Makes tokens of forms, and takes each back once."""

    def __init__(
        self, sessions: Sessions, store: MetadataStore, clock: Callable[[], float] = time.time
    ) -> None:
        self._sessions = sessions
        self._store = store
        self._clock = clock

    async def made(self, action: str, login: str) -> str:
        """Return a token for a form of an action; ``login`` is what the client showed, in the form of `login_of`."""
        word = {"form": action, "login": login, "id": f"{int(self._clock())}-{secrets.token_hex(12)}"}
        return await self._sessions.sealed_word(json.dumps(word).encode())

    async def checked(self, token: str, action: str, login: str) -> str:
        """Return the token's id; raise ``RestError`` (403) for one that is not of this action and this login."""
        try:
            word = json.loads(await self._sessions.opened_word(token, LASTS_S))
        except (InvalidToken, UnicodeEncodeError):
            raise RestError(
                403, "this form is too old, or not one of this console: load its page again"
            ) from None
        if word.get("form") != action or word.get("login") != login:
            raise RestError(403, "this form was shown to another login: load its page again")
        return str(word["id"])

    async def use(self, token_id: str) -> None:
        """Use a token up; raise ``RestError`` (409) for one that was used before."""
        try:
            await self._store.commit([Put(f"{_USED}/{token_id}", b"", MUST_NOT_EXIST)])
        except BadVersion:
            raise RestError(
                409, "this form was sent before, and is carried out once: load its page again"
            ) from None
        await self._sweep()

    async def _sweep(self) -> None:
        """Forget tokens that would be too old anyway."""
        ended = self._clock() - LASTS_S - 60
        names = await self._store.children(_USED)
        for name in [each for each in names if int(each.partition("-")[0]) < ended][:_SWEPT]:
            try:
                await self._store.commit([Delete(f"{_USED}/{name}", ANY)])
            except NotFound:
                continue  # another broker was faster
            except MetadataError:
                return  # the next one will do


def login_of(*shown: str) -> str:
    """Return what stands in a token for what a client showed."""
    return hashlib.sha256("\0".join(shown).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def fields_of(body: bytes) -> dict[str, str]:
    """Return the fields of a form; raise ``RestError`` (400). Browsers end lines with two characters."""
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
    except ValueError:
        raise RestError(400, "the form cannot be read") from None
    return {name: value.replace("\r\n", "\n") for name, value in pairs}


def is_own_form(headers: Mapping[str, str]) -> bool:
    """Return whether a browser says that a page of this very address has sent this form.

    `magnetar.web.pages` asks so, too, but lets tokens of programs pass: those have the admin REST.
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        return False
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        return site == "same-origin"
    return origin is not None and origin.partition("://")[2].lower() == headers.get("host", "").lower()
