"""Questions put to a running broker: through the socket in its data directory, or over HTTP from any machine."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from magnetar.admin.address import SOCKET, short_path
from magnetar.admin.credentials import security
from magnetar.admin.errors import Declined, Forbidden, Invalid, Unreachable
from magnetar.admin.plain import to_line
from magnetar.admin.questions import ask_line, read_answer
from magnetar.client.security import ClientSecurity

TIMEOUT_S = 30
_ROOT = "/admin/magnetar/v1"


@dataclass(frozen=True, slots=True)
class Local:
    """The broker that serves a data directory of this machine, asked through its socket."""

    data: Path

    def ask(self, question: str, **given: object) -> object:
        """Return the answer as a value; raise `Unreachable` if none serves the directory, or the error it answers."""
        return ask(self.data, question, **given)


@dataclass(frozen=True, slots=True)
class Remote:
    """A broker of any machine, asked over its admin REST.

    Who asks is told by the file that ``MAGNETAR_COMMAND_CONFIG`` names, as to Kafka's listeners.
    """

    url: str

    def ask(self, question: str, **given: object) -> object:
        """Return the answer as a value; raise `Unreachable`, `Forbidden` or the error it answers."""
        status, body = self._posted(f"{_ROOT}/{question}", to_line(given))
        try:
            said = json.loads(body)
        except ValueError:
            said = None
        if isinstance(said, dict) and ("answer" in said or "error" in said):
            return read_answer(question, body)
        reason = said.get("reason", "") if isinstance(said, dict) else body[:200].decode(errors="replace")
        if status in (401, 403):
            raise Forbidden(
                f"{self.url} does not let you in: {reason}",
                "Name a file with your user and password, or token, by MAGNETAR_COMMAND_CONFIG.",
            )
        raise Declined(f"{self.url} answered {status}: {reason}", "Is that Magnetar's admin REST?")

    def _posted(self, path: str, body: bytes) -> tuple[int, bytes]:
        who = security()
        wire = self._connection(who)
        try:
            wire.request("POST", path, body, {"content-type": "application/json"} | _authorization(who))
            answer = wire.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(
                f"no broker answers at {self.url}: {error}", "Is it served? See --http of 'standalone'."
            ) from error
        finally:
            wire.close()

    def _connection(self, who: ClientSecurity) -> http.client.HTTPConnection:
        parts = urlsplit(self.url if "://" in self.url else f"http://{self.url}")
        try:
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise Invalid(f"{self.url!r} is no address: {error}", _FORM) from None
        if parts.scheme not in ("http", "https") or not host:
            raise Invalid(f"{self.url!r} is no address of an admin REST", _FORM)
        if parts.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
        try:
            return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=who.context())
        except (OSError, ssl.SSLError) as error:
            raise Invalid(f"TLS to {self.url} cannot be set up: {error}") from None


Way = Local | Remote
_FORM = "Write http://HOST:PORT or https://HOST:PORT."


def _authorization(who: ClientSecurity) -> dict[str, str]:
    """Return the header that proves who asks: as for Kafka's listeners, ``token:`` begins a password that is one."""
    if who.mechanism != "PLAIN":
        return {}
    method, _, proof = who.password.partition(":")
    if method == "token":
        return {"authorization": f"Bearer {proof}"}
    pair = proof if method == "basic" else f"{who.username}:{who.password}"
    return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def ask(data: Path, question: str, **given: object) -> object:
    """Return the broker's answer as a value; raise `Unreachable` if none serves ``data``, or the error it answers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wire:
        wire.settimeout(TIMEOUT_S)
        try:
            with short_path(data / SOCKET) as name:
                wire.connect(name)
            wire.sendall(ask_line(question, given))
            with wire.makefile("rb") as lines:
                line = lines.readline()
        except PermissionError as error:
            raise Unreachable(
                f"the broker that serves {data} does not let you in: {error.strerror}",
                "Ask as the user it runs as.",
            ) from error
        except OSError as error:
            raise Unreachable(
                f"no broker serves {data}: {error.strerror or error}",
                f"Start one with 'magnetar standalone --data {data}', or give --data of the one that runs.",
            ) from error
    if not line:
        raise Unreachable(f"the broker that serves {data} hung up", "Look at its log.")
    return read_answer(question, line)
