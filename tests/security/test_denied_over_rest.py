"""What an ACL denies is denied by the admin REST and by operators' questions, too, also to a tenant's admin."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka.admin import AclOperation, AclPermissionType

from magnetar.admin.client import ask
from tests.process import BrokerProcess
from tests.security.signing import token
from tests.security.test_acls import binding, drop, make, started, topic

TOPICS = "/admin/v2/persistent/public/default"
NAMESPACES = "/admin/v2/namespaces/public/default"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose default tenant ruth administers; she is denied each operation on the topic of its name."""
    with started(tmp_path_factory.mktemp("denied") / "data", "http.listeners=http://127.0.0.1:0") as process:
        ask(process.data, "set-admins", tenant="public", roles=["ruth"])
        for each in ("delete", "create", "alter", "alter_configs", "describe", "read"):
            if each != "create":
                topic(process, f"no-{each}")
            operation = getattr(AclOperation, each.upper())
            make(process, binding(f"no-{each}", "ruth", operation, permission=AclPermissionType.DENY))
        topic(process, "all")
        yield process
        assert not [line for line in process.log_lines() if "Traceback" in line]


def asked(house: BrokerProcess, method: str, path: str, json: object = None, role: str = "ruth") -> int:
    headers = {"Authorization": f"Bearer {token(role)}"}
    with httpx.Client(base_url=f"http://{house.served['http'][0]}", headers=headers, timeout=20) as client:
        return client.request(method, path, json=json).status_code


@pytest.mark.parametrize(
    ("name", "method", "path", "body"),
    [
        ("no-delete", "DELETE", "?force=true", None),
        ("no-delete", "DELETE", "/partitions", None),
        ("no-delete", "DELETE", "/truncate", None),
        ("no-delete", "POST", "/trim", None),
        ("no-create", "PUT", "", None),
        ("no-create", "PUT", "/partitions", 1),
        ("no-alter", "POST", "/partitions", 3),
        ("no-alter", "PUT", "/unload", None),
        ("no-alter", "PUT", "/compaction", None),
        ("no-alter", "PUT", "/offload", None),
        ("no-alter", "POST", "/terminate", None),
        ("no-alter", "POST", "/permissions/eve", ["consume"]),
        ("no-alter", "DELETE", "/permissions/eve", None),
        ("no-alter_configs", "POST", "/retention", {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1}),
        ("no-alter_configs", "DELETE", "/retention", None),
        ("no-alter_configs", "POST", "/messageTTL?messageTTL=1", None),
        ("no-describe", "GET", "/permissions", None),
        ("no-describe", "GET", "/retention", None),
        ("no-read", "POST", "/subscription/s/skip_all", None),
    ],
)
def test_a_topic(house: BrokerProcess, name: str, method: str, path: str, body: object) -> None:
    assert asked(house, method, f"{TOPICS}/{name}{path}", body) == 403


def test_a_topics_schema(house: BrokerProcess) -> None:
    assert asked(house, "DELETE", "/admin/v2/schemas/public/default/no-alter/schema") == 403


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("DELETE", "?force=true"),
        ("POST", "/clearBacklog"),
        ("POST", "/clearBacklog/s"),
        ("POST", "/unsubscribe/s"),
    ],
)
def test_a_namespace_in_which_one_topic_is_denied(house: BrokerProcess, method: str, path: str) -> None:
    """Nothing of it is done."""
    assert asked(house, method, f"{NAMESPACES}{path}") == 403
    assert asked(house, "GET", f"{TOPICS}/all/partitions") == 200


@pytest.mark.parametrize(
    ("question", "given"),
    [
        ("compact", {"topic": "no-alter", "partitions": []}),
        ("grant", {"target": "no-alter", "role": "eve", "actions": ["consume"]}),
        ("revoke", {"target": "no-alter", "role": "eve"}),
        ("permissions", {"target": "no-describe"}),
    ],
)
def test_an_operators_question(house: BrokerProcess, question: str, given: dict[str, object]) -> None:
    assert asked(house, "POST", f"/admin/magnetar/v1/{question}", given) == 403


def test_what_is_not_denied_a_tenants_admin_may(house: BrokerProcess) -> None:
    """A denial of one operation is not one of another; and an ACL that allows all makes nobody an admin."""
    assert asked(house, "GET", f"{TOPICS}/no-delete/stats") == 200
    assert asked(house, "GET", f"{TOPICS}/no-delete/permissions") == 200
    assert asked(house, "GET", f"{TOPICS}/no-alter/retention") in (200, 204)
    assert asked(house, "POST", f"{TOPICS}/no-delete/terminate") == 200
    assert asked(house, "PUT", f"{TOPICS}/no-delete/unload") == 204
    make(house, binding("all", "otto", AclOperation.ALL))
    assert asked(house, "DELETE", f"{TOPICS}/all?force=true", role="otto") == 403
    drop(house, "otto")
    assert asked(house, "DELETE", f"{TOPICS}/all?force=true") == 204
    assert asked(house, "DELETE", f"{TOPICS}/no-delete?force=true", role="root") == 204
