"""How far it is known who a client is.

    phase       CONNECT     it is found out      AUTH_RESPONSE with a password    the connection is lost
    STRANGER    PROVING     -                    refused                          ENDED
    PROVING     refused     CONNECTED            refused                          ENDED
    CONNECTED   refused     -                    RENEWING                         ENDED
    RENEWING    refused     CONNECTED            refused                          ENDED
    ENDED

What can be told at once is found out within the command. Whoever is refused is told so, and its connection is closed;
until then the phase stays, so that nothing more is taken up.
"""

from __future__ import annotations

from enum import Enum, auto


class Phase(Enum):
    """Who is there."""

    STRANGER = auto()
    PROVING = auto()
    CONNECTED = auto()
    RENEWING = auto()
    ENDED = auto()
