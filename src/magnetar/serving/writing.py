"""How an answer that lies in parts is written to a socket, whatever the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from magnetar.records.compression import Buffer

_SMALL_BYTES = 8 << 10
_MIN_PART_BYTES = 512  # smaller ones are copied in less time than each is handed over by itself


def write_parts(transport: asyncio.WriteTransport, parts: Sequence[Buffer], *, whole: bool = False) -> None:
    """Write the parts one after the other; ``whole`` as one piece in any case.

    A scattered write saves the copy of what is large. It costs more than it saves where all is small, and of some
    two million parts uvloop makes a closed connection.
    """
    size = sum(map(len, parts))
    if whole or size <= _SMALL_BYTES or size < len(parts) * _MIN_PART_BYTES:
        transport.write(b"".join(parts))
    else:
        transport.writelines(parts)
