"""Write an answer that consists of parts to a socket, for any protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from magnetar.records.compression import Buffer

_SMALL_BYTES = 8 << 10
_MIN_PART_BYTES = 512  # a smaller part is copied in less time than it is handed over on its own


def write_parts(transport: asyncio.WriteTransport, parts: Sequence[Buffer], *, whole: bool = False) -> None:
    """Write the parts one after the other; ``whole``: as one piece in any case.

    A scattered write saves the copy of large parts. It costs more than it saves where all parts are small, and with
    some two million parts uvloop closes the connection.
    """
    size = sum(map(len, parts))
    if whole or size <= _SMALL_BYTES or size < len(parts) * _MIN_PART_BYTES:
        transport.write(b"".join(parts))
    else:
        transport.writelines(parts)
