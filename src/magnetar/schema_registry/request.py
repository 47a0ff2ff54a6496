"""One request as an endpoint of the registry sees it, and who may ask what.

Nobody is refused while ``authorization.enabled`` is off. Where it is on, a subject stands for a topic: its name without
``-key`` or ``-value`` (and, where records' names are subjects, the name itself). Who may produce to or consume from it
may read its schemas, who may produce may register, and the admins of the topic's tenant may do everything. What
concerns all subjects is for the admins of the tenant whose registry it is, and for super users where tenants share one.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

from magnetar.auth import Access, Right, Tenant, may
from magnetar.auth.authentication import BASIC, TLS, TOKEN, AuthenticationFailed, Principal
from magnetar.auth.proxied import ORIGINAL_PRINCIPAL_HEADER, behind
from magnetar.base.errors import InvalidTopic
from magnetar.node.broker import Broker
from magnetar.schema_registry.errors import RegistryError, no_subject
from magnetar.schema_registry.references import MAX_REFERENCES, none_found, walk
from magnetar.schema_registry.registry import Registry
from magnetar.schema_registry.schema import Reference, Schema
from magnetar.schema_registry.workshop import Locks, Workshop
from magnetar.topics.names import TopicName

MAX_VERSION = (1 << 31) - 1
MAX_NAME_LENGTH = 500
_MAX_DIGITS = 18


class RequiredGrant(StrEnum):
    """What somebody must be granted."""

    nothing = "to be let in"
    read = "produce or consume on the subject's topic"
    write = "produce on the subject's topic"
    admin = "to be an admin of the tenant"


_RIGHTS = {
    RequiredGrant.read: Right.see,
    RequiredGrant.write: Right.produce,
    RequiredGrant.admin: Right.administer,
}


@dataclass
class RegistryRequest:
    """One request: path and query values, body, the registry that answers, and who asks."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes
    registry: Registry
    locks: Locks
    workshop: Workshop
    broker: Broker
    principal: Principal
    home: str
    """``tenant/namespace`` of short subjects."""

    @property
    def subject(self) -> str:
        """The subject of the path; contexts other than the default one are not known."""
        return plain_subject(self.path["subject"])

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a boolean of the query."""
        text = self.query.get(name)
        return default if text is None else text.lower() == "true"

    def locked(self) -> AbstractAsyncContextManager[None]:
        """Hold what the path is about, a subject or the registry, so that nobody else changes it."""
        return self.locks.of(self.registry.kept.tenant, self.subject if "subject" in self.path else None)

    def number(self, name: str, default: int) -> int:
        """Return a whole number of the query; raise `RegistryError` (400)."""
        text = self.query.get(name)
        if text is None:
            return default
        found = whole_number(text)
        if found is None:
            raise RegistryError(400, f"{name} must be a whole number, not {text[:100]!r}")
        return found

    def given_number(self, name: str) -> int:
        """Return a whole number above zero of the body, -1 where there is none; raise `RegistryError` (422)."""
        found = self.object().get(name)
        if found is None:
            return -1
        if not isinstance(found, int) or isinstance(found, bool) or not -1 <= found <= MAX_VERSION:
            raise RegistryError(
                422, f"{name} must be a whole number up to {MAX_VERSION}, not {str(found)[:100]}"
            )
        return found or -1

    @property
    def schema_id(self) -> int:
        """The id of the path."""
        found = whole_number(self.path["id"])
        if found is None:
            raise RegistryError(404, "HTTP 404 Not Found")
        return found

    @property
    def version(self) -> int:
        """The version of the path, -1 for the latest; raises `RegistryError` 42202."""
        text = self.path["version"]
        number = -1 if text == "latest" else whole_number(text)
        if number is None or (number != -1 and not 1 <= number <= MAX_VERSION):
            raise RegistryError(
                42202,
                f"The specified version '{text[:100]}' is not a valid version id. "
                'Allowed values are between [1, 2^31-1] and the string "latest"',
            )
        return number

    def object(self) -> dict[str, Any]:
        """Return the body, which must be a JSON object; raise `RegistryError` (400 or 422)."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise RegistryError(400, f"the body is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise RegistryError(422, f"the body must be a JSON object, not {type(found).__name__}")
        return found

    def schema(self) -> Schema:
        """Return the schema of the body as it was sent."""
        content = self.object()
        text, kind = content.get("schema"), content.get("schemaType") or "AVRO"
        if not isinstance(text, str) or not text.strip():
            raise RegistryError(42201, "Empty schema")
        if not isinstance(kind, str):
            raise RegistryError(422, "schemaType must be a string")
        references = content.get("references") or []
        if not isinstance(references, list) or len(references) > MAX_REFERENCES:
            raise RegistryError(422, f"references must be a list of at most {MAX_REFERENCES}")
        return Schema(kind, text, tuple(_reference(each) for each in references))

    def check_references(self, schema: Schema) -> None:
        """Raise `InvalidSchema` unless whoever asks may read all that a schema refers to, as if it were not there."""
        for each in walk(self.registry, schema.references):
            if not self.allows(each.reference.subject, RequiredGrant.read):
                raise none_found(each.reference, no_subject(each.reference.subject))

    def sees_behind(self, schema: Schema) -> bool:
        """Whether whoever asks may read all that a schema refers to."""
        return all(self.allows(name, RequiredGrant.read) for name in self.registry.subjects_behind(schema))

    # -- who may ----------------------------------------------------------------------------------------------

    def check(self, needs: RequiredGrant) -> None:
        """Raise `RegistryError` 40301 unless whoever asks may."""
        if "subject" in self.path:
            allowed = self.allows(self.subject, needs)
        else:
            allowed = needs in (RequiredGrant.nothing, RequiredGrant.read) or self.governs()
        if not allowed:
            raise RegistryError(40301, f"{self.principal.role or 'anonymous'} lacks: {needs}")

    def allows(self, subject: str, needs: RequiredGrant) -> bool:
        """Whether whoever asks may do this with a subject."""
        if needs is RequiredGrant.nothing:
            return True
        topic = topic_of(subject, self.home)
        return self.governs() if topic is None else may(self._access, _RIGHTS[needs], topic)

    def governs(self) -> bool:
        """Whether whoever asks may do what concerns all subjects of the registry, or one that stands for no topic."""
        if self.broker.settings.names.kafka_enable_multi_tenant_metadata:
            return may(self._access, Right.administer, Tenant(self.home.partition("/")[0]))
        return may(self._access, Right.operate)

    @cached_property
    def _access(self) -> Access | None:
        return self.broker.security.authorization.access_of(self.principal)


def whole_number(text: str) -> int | None:
    """Return the number that a text is, or None; no more digits than any number here has."""
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdecimal() or len(digits) > _MAX_DIGITS:
        return None
    return int(text)


def _reference(said: Any) -> Reference:
    name, subject, version = (
        said.get(each) if isinstance(said, dict) else None for each in Reference._fields
    )
    if not isinstance(name, str) or not isinstance(subject, str):
        raise RegistryError(422, "each of references needs name, subject and version")
    if isinstance(version, str):
        version = whole_number(version)
    if not isinstance(version, int) or isinstance(version, bool) or not -1 <= version <= MAX_VERSION:
        raise RegistryError(422, "the version of a reference must be a whole number")
    if len(name) > MAX_NAME_LENGTH or not name.isprintable() or not name.strip():
        raise RegistryError(
            422, f"the name of a reference must be up to {MAX_NAME_LENGTH} printable characters"
        )
    return Reference(name, plain_subject(subject), version)


def plain_subject(name: str) -> str:
    """Return a subject without the name of the default context, ``:.:``; raise `RegistryError` for another one."""
    if not name.startswith(":."):
        return name
    context, _, subject = name[2:].partition(":")
    if context:
        raise RegistryError(42208, f"There is only the default context, no '.{context}'")
    return subject


def topic_of(subject: str, home: str) -> TopicName | None:
    """Return the topic that a subject stands for; None if it can be none."""
    name = subject.removesuffix("-value") if subject.endswith("-value") else subject.removesuffix("-key")
    try:
        return TopicName.parse(name, *home.split("/"))
    except InvalidTopic:
        return None


async def principal_of(
    broker: Broker, headers: Mapping[str, str], certificate: Mapping[str, Any] | None, address: str = ""
) -> tuple[Principal, str]:
    """Return who asks and which ``tenant/namespace`` is its home; raise ``AuthenticationFailed``.

    A token comes as ``Bearer``, or as in KoP by ``Basic`` with the tenant as user and ``token:<JWT>`` as password.
    A user of ``basic.auth.conf`` comes by ``Basic`` as it is, or to a tenant with ``basic:<user>:<password>``.
    A proxy's role names its client by ``X-Original-Principal``, as with the admin REST.
    """
    authentication, naming = broker.security.authentication, broker.naming
    home = f"{naming.tenant}/{naming.namespace}"
    methods = authentication.methods if authentication.enabled else ()
    by_certificate = bool(certificate) and TLS in methods
    given = _credentials(headers.get("authorization", ""), BASIC in methods, by_certificate)
    if given.tenant and broker.settings.names.kafka_enable_multi_tenant_metadata:
        home = given.tenant if "/" in given.tenant else f"{given.tenant}/{naming.namespace}"
        if home.partition("/")[0] not in broker.namespaces.tenants():
            raise AuthenticationFailed(f"there is no tenant {given.tenant}")
    if not authentication.enabled:
        return Principal("", ""), home
    if given.proof:
        principal = await authentication.prove(given.method, given.proof, address=address)
    elif by_certificate:
        principal = authentication.by_certificate(certificate)
    else:
        principal = authentication.anonymous()
    principal = behind(principal, headers.get(ORIGINAL_PRINCIPAL_HEADER, ""), broker.settings.security)
    if given.tenant or broker.settings.names.kafka_enable_multi_tenant_metadata:
        tenant = home.partition("/")[0]
        if not may(broker.security.authorization.access_of(principal), Right.enter, Tenant(tenant)):
            raise RegistryError(40301, f"{principal.role} has no grant in tenant {tenant}")
    return principal, home


class _Credentials(NamedTuple):
    """What an Authorization header says: for which tenant, if any, and what proves who it is, if anything."""

    tenant: str = ""
    method: str = ""
    proof: str = ""


def _credentials(header: str, knows_users: bool, by_certificate: bool) -> _Credentials:
    scheme, _, said = header.partition(" ")
    if scheme.lower() == "bearer":
        return _Credentials(method=TOKEN, proof=said)
    if scheme.lower() != "basic":
        return _Credentials()
    user, password = _basic(said)
    if not knows_users or password.startswith("token:"):
        return _Credentials(user, TOKEN, password)
    if password.startswith("basic:"):
        return _Credentials(user, BASIC, password.removeprefix("basic:"))
    if not password and by_certificate:
        return _Credentials(user)
    return _Credentials(method=BASIC, proof=f"{user}:{password}")


def _basic(said: str) -> tuple[str, str]:
    try:
        user, _, password = base64.b64decode(said, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        raise AuthenticationFailed("the Basic credentials cannot be read") from None
    return user, password
