"""Kazoo's client with TLS and logins as `zookeeper_security` has them.

Kazoo's own TLS trusts whom the system trusts besides the authorities that it is given, and says nothing of a handshake
that failed; its DIGEST-MD5 needs a package that nobody looks after any more. So both are done here: a context of ours
for the socket, and the two answers of RFC 2831 that ZooKeeper asks for.
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
import socket
import ssl
from collections.abc import Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionDropped, ConnectionHandler
from kazoo.protocol.serialization import SASL

from magnetar.metadata.zookeeper_security import ZooKeeperSecurity, untrusted

_quiet = logging.getLogger("magnetar.kazoo")
_quiet.setLevel(logging.CRITICAL)  # whoever uses a client tells of its trouble
_REALM = "zk-sasl-md5"  # the servers' own name of themselves, whatever they are called
_FIELD = re.compile(r'(\w+)=(?:"((?:[^"\\]|\\.)*)"|([^,]*))')


class _TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Opens connections with TLS; ``trouble`` is why the last one could not be."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__()
        self.trouble = ""
        self._context = context

    def create_connection(
        self, address: tuple[str, int], timeout: float | None = None, hostname: str | None = None, **_: object
    ) -> socket.socket:
        """Return a connection; whatever fails is an ``OSError``, after which kazoo tries the next server."""
        plain = socket.create_connection(address, timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            secured = self._context.wrap_socket(plain, server_hostname=hostname or address[0])
        except OSError as error:
            plain.close()
            if isinstance(error, ssl.SSLError):
                self.trouble = untrusted(f"{hostname or address[0]}:{address[1]}", error)
            raise
        self.trouble = ""
        return secured

    def select(
        self, rlist: Sequence[Any], wlist: Sequence[Any], xlist: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Wait as ``select.select`` does, but not for what came with an answer that was taken.

        Kazoo takes one answer, then waits for the socket. What else a record of TLS has is in the process already, and
        the socket has nothing: kazoo would wait for the next answer, or take the connection for dead.
        """
        there = [each for each in rlist if isinstance(each, ssl.SSLSocket) and each.pending()]
        readable, writable, failed = super().select(rlist, wlist, xlist, 0 if there else timeout)
        return [*there, *(each for each in readable if each not in there)], writable, failed


class SecuredConnection(ConnectionHandler):  # type: ignore[misc]
    """Kazoo's connection, which can log in."""

    client: SecuredClient

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        security = self.client.security
        self.client.refused = (  # until it is known better
            f"{host} refuses the login of {security.user!r}: look at username and password in the JAAS file"
        )
        challenge = self._sasl(b"", 1, timeout)
        answer, proof = digest_answer(security.user, security.password, challenge)
        if f"rspauth={proof}".encode() not in self._sasl(answer, 2, timeout):
            raise ConnectionDropped(f"{host} does not know the password itself")
        self.client.refused = ""

    def _sasl(self, token: bytes, number: int, timeout: float) -> bytes:
        """Send a token and return the server's. Who is refused is dropped, and tries again later: passwords change."""
        self._submit(SASL(token), timeout, number)
        header, buffer, offset = self._read_header(timeout)
        if header.err:
            raise ConnectionDropped(f"the login was refused with code {header.err}")
        found, _ = SASL.deserialize(buffer, offset)
        return bytes(found or b"")


class SecuredClient(KazooClient):  # type: ignore[misc]
    """A client that comes to ZooKeeper as ``security`` says; all else is kazoo's."""

    def __init__(self, hosts: str, security: ZooKeeperSecurity, **others: Any) -> None:
        context = security.context()
        handler = SequentialThreadingHandler() if context is None else _TlsHandler(context)
        others.setdefault("logger", _quiet)
        super().__init__(hosts=hosts, handler=handler, **others)
        self.security = security
        self.refused = ""
        self._connection = self._make_connection()

    def _make_connection(self) -> SecuredConnection:
        return SecuredConnection(
            self, self._conn_retry.copy(), logger=self.logger, sasl_options=self.sasl_needed
        )

    @property
    def sasl_needed(self) -> dict[str, str] | None:
        """What tells kazoo that there is to be a login."""
        return {"mechanism": "DIGEST-MD5"} if self.security.user else None

    @property
    def known_trouble(self) -> str:
        """Why the last server did not let this client in, empty if it did not say."""
        return str(getattr(self.handler, "trouble", "")) or self.refused

    @property
    def trouble(self) -> str:
        """Why no server lets this client in, or what to look at where that is not known."""
        return self.known_trouble or self.security.hint()


def digest_answer(
    user: str, password: str, challenge: bytes, *, uri: str = f"zookeeper/{_REALM}", own: str = ""
) -> tuple[bytes, str]:
    """Return the answer to a challenge of DIGEST-MD5 (RFC 2831), and what the server has to prove in turn.

    ``own`` is this client's nonce; without one it is made.
    """
    told = {
        name: quoted or plain for name, quoted, plain in _FIELD.findall(challenge.decode("utf-8", "replace"))
    }
    nonce, realm, own = told.get("nonce", ""), told.get("realm", _REALM), own or secrets.token_hex(16)
    secret = hashlib.md5(f"{user}:{realm}:{password}".encode(), usedforsecurity=False).digest()
    first = _hex(secret + f":{nonce}:{own}".encode())

    def response(second: str) -> str:
        return _hex(f"{first}:{nonce}:00000001:{own}:auth:{_hex(second.encode())}".encode())

    fields = {"username": user, "realm": realm, "nonce": nonce, "cnonce": own, "digest-uri": uri}
    quoted = ",".join(f'{name}="{_escaped(value)}"' for name, value in fields.items())
    answer = f"charset=utf-8,{quoted},nc=00000001,qop=auth,response={response(f'AUTHENTICATE:{uri}')}"
    return answer.encode(), response(f":{uri}")


def _hex(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
