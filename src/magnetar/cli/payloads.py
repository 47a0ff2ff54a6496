"""How commands decode and encode keys and values: the options, and what they mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from magnetar.admin.lines import Seen, to_json

if TYPE_CHECKING:
    from magnetar.admin.payloads.decoding import Decoding

# Schemas' libraries are loaded by commands that decode.

SchemaRegistryUrl = Annotated[
    str | None,
    typer.Option(
        "--schema-registry",
        envvar="MAGNETAR_SCHEMA_REGISTRY",
        metavar="URL",
        help="The schema registry; by default the broker's own if it runs on this machine.",
    ),
]


class Decode(StrEnum):
    """Forms in which keys and values are shown."""

    none = "none"
    auto = "auto"
    hex = "hex"


class Readable(Protocol):
    """A record that can be printed."""

    def printed(self) -> Seen: ...

    def json(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class AsStored:
    """A record as it is stored."""

    seen: Seen

    def printed(self) -> Seen:
        """Return the record itself."""
        return self.seen

    def json(self) -> dict[str, Any]:
        """Return the record's JSON object."""
        return to_json(self.seen)


@dataclass(frozen=True, slots=True)
class InHex:
    """A record whose key and value are shown in hexadecimal digits."""

    seen: Seen

    def printed(self) -> Seen:
        """Return the record with digits for key and value."""
        return replace(self.seen, key=_hex(self.seen.key), value=_hex(self.seen.value))

    def json(self) -> dict[str, Any]:
        """Return the record's JSON object."""
        shown = self.printed()
        return to_json(self.seen) | {
            "key": None if shown.key is None else {"hex": shown.key.decode()},
            "value": None if shown.value is None else {"hex": shown.value.decode()},
        }


@dataclass(frozen=True, slots=True)
class Understanding:
    """Turns records into what is shown; ``decoding`` counts what could not be decoded."""

    read: Callable[[Seen], Readable]
    decoding: Decoding | None = None


def understanding(how: Decode, topic: str, registry: str | None, bootstrap: str) -> Understanding:
    """Return what a record is shown as."""
    if how is Decode.none:
        return Understanding(AsStored)
    if how is Decode.hex:
        return Understanding(InHex)
    from magnetar.admin.payloads.sources import decoding_of

    decoding = decoding_of(topic, registry, bootstrap)
    return Understanding(decoding.decode, decoding)


def _hex(data: bytes | None) -> bytes | None:
    return None if data is None else data.hex().encode()
