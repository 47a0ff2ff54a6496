"""Questions put to a running broker: through the socket in its data directory, or over HTTP from any machine."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from magnetar.admin.address import SOCKET, short_path
from magnetar.admin.errors import Declined, Forbidden, Silent, Unreachable
from magnetar.admin.http_endpoint import HttpEndpoint
from magnetar.admin.plain import to_line
from magnetar.admin.questions import ask_line, read_answer

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
        hint = "Is it served? See --http of 'standalone'."
        return HttpEndpoint(self.url, "broker", "an admin REST", hint).request("POST", path, body)


Way = Local | Remote


def ask(data: Path, question: str, **given: object) -> object:
    """Return the broker's answer as a value; raise `Unreachable` if none serves ``data``, or the error it answers."""
    return ask_within(TIMEOUT_S, data, question, given)


def ask_within(within_s: float, data: Path, question: str, given: Mapping[str, object]) -> object:
    """Return the same; of a broker that does not answer in time, the error is `Silent`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wire:
        wire.settimeout(within_s)
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
        except TimeoutError:
            raise Silent(
                f"the broker that serves {data} did not answer within {within_s:g} s",
                "It hangs, or has very much to do: look at its log and at its process.",
            ) from None
        except OSError as error:
            raise Unreachable(
                f"no broker serves {data}: {error.strerror or error}",
                f"Start one with 'magnetar standalone --data {data}', or give --data of the one that runs.",
            ) from error
    if not line:
        raise Unreachable(f"the broker that serves {data} hung up", "Look at its log.")
    return read_answer(question, line)


def process_of(data: Path, within_s: float = TIMEOUT_S) -> int | None:
    """Return the process that serves a directory, by the system's word: it answers for one that hangs, too."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wire:
        wire.settimeout(within_s)
        try:
            with short_path(data / SOCKET) as name:
                wire.connect(name)
            pid, _, _ = struct.unpack("3i", wire.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        except (OSError, AttributeError):  # nothing listens, or a system that does not say
            return None
    return pid if pid > 0 else None
