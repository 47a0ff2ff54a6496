"""What the registry refuses, with Confluent's codes: the first three digits are the HTTP status."""

from __future__ import annotations


class RegistryError(Exception):
    """A refusal. ``code`` is Confluent's (40401, 42201, 409 ...)."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.code if self.code < 1000 else self.code // 100


class InvalidSchema(RegistryError):
    """A text that is no schema of its kind (42201)."""

    def __init__(self, message: str) -> None:
        super().__init__(42201, message)


class Incompatible(RegistryError):
    """A schema that its subject's compatibility level does not allow (409)."""

    def __init__(self, subject: str, reasons: list[str]) -> None:
        told = "; ".join(reasons)
        super().__init__(
            409,
            f'Schema being registered is incompatible with an earlier schema for subject "{subject}", '
            f"details: [{told}]",
        )


def no_subject(subject: str) -> RegistryError:
    return RegistryError(40401, f"Subject '{subject}' not found.")


def no_version(version: int) -> RegistryError:
    return RegistryError(40402, f"Version {version} not found.")


def no_schema(schema_id: int | None = None) -> RegistryError:
    return RegistryError(40403, "Schema not found" if schema_id is None else f"Schema {schema_id} not found")
