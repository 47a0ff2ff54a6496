"""What every generated message and struct has in common."""

from __future__ import annotations

import struct
from io import BytesIO
from typing import Any, ClassVar, Self

from magnetar.wire.kafka.malformed import WireError, unknown_version
from magnetar.wire.kafka.primitives import MAX_ELEMENTS, Append

_MALFORMED = (IndexError, struct.error, UnicodeError)
_UNSAYABLE = (struct.error, UnicodeError, TypeError, AttributeError)


class Record:
    """A plain value with ``__slots__``: compared and shown by its fields, and changed freely."""

    __slots__: tuple[str, ...] = ()
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({fields})"


class Message(Record):
    """One message of Kafka's protocol, free of versions until it is read or written."""

    __slots__ = ()

    #: The API's key; of a coordinator's record its type; -1 where there is none.
    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    #: The first version with compact lengths and tagged fields, or NEVER_FLEXIBLE (KIP-482).
    FLEXIBLE_SINCE: ClassVar[int]

    #: Whether ``decode`` may copy: messages that carry record batches are read in place.
    _IN_PLACE: ClassVar[bool]
    _read: ClassVar[Any]
    _write: ClassVar[Any]

    @classmethod
    def decode(cls, data: bytes | memoryview, version: int, *, max_elements: int = MAX_ELEMENTS) -> Self:
        """Read the message from the start of ``data``, which may go on behind it.

        Record batches come as memoryviews of ``data``. Raises ``WireError``, and nothing else, when these are
        not the bytes of such a message, or if all its arrays together have more than ``max_elements``.
        """
        if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
            raise unknown_version(cls.__name__, version)
        if cls._IN_PLACE:
            if type(data) is not memoryview:
                data = memoryview(data)
        elif type(data) is not bytes:
            data = bytes(data)  # slices of bytes are much cheaper than those of a memoryview
        try:
            messages, end = cls._read(data, 0, version, 1, [max_elements])
        except _MALFORMED as error:
            raise WireError(f"{cls.__name__} version {version}: {error}") from error
        if end > len(data):
            raise WireError(f"{cls.__name__} version {version} ends too early")
        message: Self = messages[0]
        return message

    def encode(self, version: int) -> bytes:
        """Write the message; raises ``WireError`` for a value that this version cannot carry."""
        whole = BytesIO()  # of a million rows the parts would take thirty times their room
        self._write_to(whole.write, version)
        return whole.getvalue()

    def encode_parts(self, version: int) -> list[bytes | memoryview]:
        """Write the message as parts to be sent one after the other; big record batches are not copied."""
        parts: list[bytes | memoryview] = []
        self._write_to(parts.append, version)
        return parts

    def _write_to(self, append: Append, version: int) -> None:
        if not self.MIN_VERSION <= version <= self.MAX_VERSION:
            raise unknown_version(type(self).__name__, version)
        try:
            self._write((self,), append, version)
        except _UNSAYABLE as error:
            raise WireError(f"{type(self).__name__} version {version}: {error}") from error
