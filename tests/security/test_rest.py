"""Pulsar's admin REST over TLS: the same tokens and certificates, and its grants count for Kafka's clients."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.wire.kafka.errors import ErrorCode
from tests.hostile.client import Wire, produce
from tests.security.conftest import Secured
from tests.security.signing import OTHER_SECRET, expiring, token, unsigned

PERMISSIONS = "/admin/v2/namespaces/public/default/permissions"


def rest(secured: Secured, text: str | None = None, certificate: str | None = None) -> httpx.Client:
    port = secured.process.served["http"][0].rpartition(":")[2].rstrip("/")
    headers = {} if text is None else {"Authorization": f"Bearer {text}"}
    context = secured.trusting(secured.authority.sign(certificate) if certificate else None)
    return httpx.Client(base_url=f"https://localhost:{port}", headers=headers, verify=context, timeout=20)


def test_a_grant_over_rest_counts_for_kafkas_clients(
    secured: Secured, wire_as: Callable[[str], Wire]
) -> None:
    batch = encode_batch([PlainRecord(None, b"x", [], 0, 0)])
    topic = "granted-over-rest"
    with rest(secured, token("root")) as admin:
        path = "/admin/v2/persistent/public/default/granted-over-rest"
        assert admin.put(f"{path}/partitions", content=b"1").status_code == 204
    assert produce(wire_as("root"), topic, batch).error_code == 0
    wire = wire_as("rest-writer")
    assert produce(wire, topic, batch).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with rest(secured, token("root")) as admin:
        assert admin.post(f"{PERMISSIONS}/rest-writer", json=["produce"]).status_code == 204
        assert admin.get(PERMISSIONS).json()["rest-writer"] == ["produce"]
        assert produce(wire, topic, batch).error_code == 0
        assert admin.delete(f"{PERMISSIONS}/rest-writer").status_code == 204
    assert produce(wire, topic, batch).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_certificate_opens_it_too(secured: Secured) -> None:
    with rest(secured, certificate="root") as admin:
        assert admin.get(PERMISSIONS).status_code == 200


@pytest.mark.parametrize(
    "text", [None, "nonsense", token("root", OTHER_SECRET), expiring(-5, "root"), unsigned("root")]
)
def test_who_proves_nothing_gets_401(secured: Secured, text: str | None) -> None:
    with rest(secured, text) as admin:
        assert admin.get(PERMISSIONS).status_code == 401


def test_who_is_no_admin_gets_403(secured: Secured) -> None:
    with rest(secured, token("nobody")) as admin:
        assert admin.post(f"{PERMISSIONS}/nobody", json=["produce"]).status_code == 403
        assert admin.get(PERMISSIONS).status_code == 403
