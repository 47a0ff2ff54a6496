"""Questions put to a running broker through its admin socket."""

from __future__ import annotations

import socket
from pathlib import Path

from magnetar.admin.address import SOCKET, short_path
from magnetar.admin.errors import Unreachable
from magnetar.admin.questions import ask_line, read_answer

TIMEOUT_S = 30


def ask(data: Path, question: str, **given: object) -> object:
    """Give the broker's answer as a value; raise `Unreachable` if none serves ``data``, or the error it answers."""
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
