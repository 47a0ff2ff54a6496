"""ApiVersions says the same before and after a client has said who it is, on each kind of listener."""

from __future__ import annotations

import pytest

from magnetar.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from tests.security.conftest import LISTENERS, Secured, say
from tests.security.signing import token


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("version", [0, 3, 4, 5])
def test_each_listener_lists_the_same(secured: Secured, listener: str, version: int) -> None:
    request = ApiVersionsRequest()
    if version >= 3:
        request = ApiVersionsRequest(
            client_software_name="apache-kafka-java", client_software_version="3.7.2"
        )
    certificate = secured.authority.sign("root") if listener == "SSL" else None
    context = secured.trusting(certificate) if listener.endswith("SSL") else None
    with secured.wire(listener, context) as wire, secured.wire() as known:
        before = wire.ask(request, version)
        assert say(known, f"token:{token('root')}").error_code == 0
        after = known.ask(request, version)
    assert before == after
    assert before.api_keys[0].min_version == 0
    assert all(each.min_version > 0 for each in before.supported_features) or version >= 4


def test_who_is_a_stranger_is_not_asked_for_the_node(secured: Secured) -> None:
    """As on Kafka, where only requests of clients that are known are held against the cluster and node."""
    request = ApiVersionsRequest(
        client_software_name="a", client_software_version="1", cluster_id="another", node_id=7
    )
    with secured.wire() as wire:
        assert wire.ask(request, 5).error_code == 0
        assert say(wire, f"token:{token('root')}").error_code == 0
        assert wire.ask(request, 5).error_code == 129
