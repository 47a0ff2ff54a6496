"""What a process that serves tells whoever started it."""

from __future__ import annotations

import logging
import os

_log = logging.getLogger("magnetar.supervisor")


def tell_supervisor() -> None:
    """Tell systemd that clients may connect (``Type=notify``), where it wants to know."""
    where = os.environ.get("NOTIFY_SOCKET", "")
    if not where:
        return
    import socket

    address = "\0" + where[1:] if where.startswith("@") else where
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        try:
            sock.sendto(b"READY=1", address)
        except OSError as error:
            _log.warning("systemd cannot be told that this is ready: %s", error)
