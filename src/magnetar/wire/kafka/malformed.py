"""What the codec raises: only ``WireError``, so that one ``except`` closes the connection of a broken client."""

from __future__ import annotations


class WireError(Exception):
    """The bytes are no such message, or the values cannot be written as one."""


class TooManyElements(WireError):
    """Arrays claim more elements than their bytes can hold, or than whoever asked wanted to read."""


class UnsupportedVersion(WireError):
    """The codec does not know this version of the message, or a value cannot be said in it."""


def unknown_version(name: str, version: int) -> UnsupportedVersion:
    return UnsupportedVersion(f"{name} has no version {version}")


def null_field(field: str) -> WireError:
    return WireError(f"{field} must not be null")


def too_many(field: str, count: int) -> TooManyElements:
    return TooManyElements(f"{field} claims {count} elements, more than the bytes can hold or we allow")


def not_in_version(field: str, version: int) -> UnsupportedVersion:
    return UnsupportedVersion(f"{field} has a value, but version {version} cannot carry it")


def bad_tag(field: str) -> WireError:
    return WireError(f"the size of tagged field {field} is not that of its value")
