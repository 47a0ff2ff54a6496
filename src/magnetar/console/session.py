"""Logins of browsers: a cookie that holds, sealed, what its owner showed at the login. No page can read it.

Nothing is stored of a session: the cookie is encrypted with a key of the metadata store (Fernet: AES-128 and HMAC),
so that each worker and each broker of a cluster reads it. What it holds is checked with each request, as an
``Authorization`` header would be: a changed password, an expired token or a revoked grant counts immediately.
"""

from __future__ import annotations

import base64
import json
from urllib.parse import parse_qsl

from cryptography.fernet import Fernet, InvalidToken

from magnetar.auth.authentication import BASIC, TOKEN
from magnetar.metadata import MUST_NOT_EXIST, BadVersion, MetadataStore, Put

COOKIE = "magnetar_console"
LASTS_S = 12 * 3600
"""After that its owner logs in again."""
MAX_COOKIE_BYTES = 4000
"""Browsers drop larger ones without a word."""
MAX_FORM_BYTES = 16 << 10
_KEY = "/magnetar/console-key"


class Sessions:
    """Seals and opens cookies."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._fernet: Fernet | None = None

    async def sealed(self, header: str) -> str:
        """Return the cookie's value for an ``Authorization`` header."""
        content = json.dumps({"authorization": header}).encode()
        return (await self._key()).encrypt(content).decode("ascii")

    async def opened(self, cookie: str) -> str:
        """Return the header that a cookie holds; empty for one that is too old, or not of this cluster."""
        if not cookie or len(cookie) > MAX_COOKIE_BYTES:
            return ""
        try:
            content = (await self._key()).decrypt(cookie.encode("ascii"), ttl=LASTS_S)
        except (InvalidToken, UnicodeEncodeError):
            return ""
        return str(json.loads(content).get("authorization", ""))

    async def sealed_word(self, word: bytes) -> str:
        """Return a word that only this cluster can write and read."""
        return (await self._key()).encrypt(word).decode("ascii")

    async def opened_word(self, sealed: str, lasts_s: int) -> bytes:
        """Return what was sealed; raise ``InvalidToken`` for what is too old or was not, or ``UnicodeEncodeError``."""
        return (await self._key()).decrypt(sealed.encode("ascii"), ttl=lasts_s)

    async def _key(self) -> Fernet:
        while self._fernet is None:
            stored = await self._store.get(_KEY)
            if stored is not None:
                self._fernet = Fernet(stored.value)
            else:
                try:
                    await self._store.commit([Put(_KEY, Fernet.generate_key(), MUST_NOT_EXIST)])
                except BadVersion:
                    continue  # another worker or broker was faster
        return self._fernet


def set_cookie(value: str, *, secure: bool, lasts_s: int = LASTS_S) -> str:
    """Return the header that has a browser keep a cookie, for these pages alone."""
    only_tls = "; Secure" if secure else ""
    return f"{COOKIE}={value}; Path=/console; Max-Age={lasts_s}; HttpOnly; SameSite=Strict{only_tls}"


def header_of_form(body: bytes, methods: tuple[str, ...]) -> str:
    """Return the ``Authorization`` header that a filled-in form stands for; empty for one that was left empty."""
    try:
        fields = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=10))
    except ValueError:
        return ""
    token, user = fields.get("token", "").strip(), fields.get("user", "")
    if token and TOKEN in methods and token.isprintable():
        return f"Bearer {token}"
    if user and BASIC in methods:
        said = f"{user}:{fields.get('password', '')}".encode()
        return f"Basic {base64.b64encode(said).decode()}"
    return ""


def own_place(given: str) -> str:
    """Return where a login goes on: a page of the console, whatever the link to the login says."""
    is_own = (
        given.startswith("/console") and given.isprintable() and "\\" not in given and "//" not in given[:10]
    )
    return given if is_own else "/console"
