"""Tokens, passwords and grants at the registry: a subject stands for its topic."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from tests.process import BrokerProcess
from tests.schema_registry.conftest import registry_url
from tests.schema_registry.test_rest import ONE, TWO
from tests.security.signing import OTHER_SECRET, SECRET_URL, expiring, token, unsigned


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {
        "authentication.enabled": "true",
        "authorization.enabled": "true",
        "token.secret.key": SECRET_URL,
        "super.user.roles": "root",
        "connection.failed.authentication.delay.ms": "1",
    }
    given = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    data = tmp_path_factory.mktemp("secured") / "data"
    with BrokerProcess(data, "--schema-registry", "127.0.0.1:0", "--http", "127.0.0.1:0", *given) as process:
        with httpx.Client(base_url=f"http://{process.served['http'][0]}", headers=bearer("root")) as admin:
            grants = "/admin/v2/persistent/public/default/mine/permissions"
            admin.put("/admin/v2/persistent/public/default/mine/partitions", content=b"1")
            assert admin.post(f"{grants}/writer", json=["produce"]).is_success
            assert admin.post(f"{grants}/reader", json=["consume"]).is_success
        yield process


def bearer(role: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token(role)}"}


def asking(process: BrokerProcess, headers: dict[str, str] | None) -> httpx.Client:
    return httpx.Client(base_url=registry_url(process), headers=headers, timeout=20)


@pytest.mark.parametrize(
    "text", [None, "nonsense", token("root", OTHER_SECRET), expiring(-5, "root"), unsigned("root")]
)
def test_who_proves_nothing_gets_401(secured: BrokerProcess, text: str | None) -> None:
    headers = None if text is None else {"Authorization": f"Bearer {text}"}
    with asking(secured, headers) as http:
        answer = http.get("/subjects")
        assert (answer.status_code, answer.json()["error_code"]) == (401, 401)


def test_kops_basic_credentials(secured: BrokerProcess) -> None:
    said = base64.b64encode(f"public:token:{token('root')}".encode()).decode()
    with asking(secured, {"Authorization": f"Basic {said}"}) as http:
        assert http.get("/subjects").status_code == 200
    for wrong in ("public:nonsense", "public"):
        said = base64.b64encode(wrong.encode()).decode()
        with asking(secured, {"Authorization": f"Basic {said}"}) as http:
            assert http.get("/subjects").status_code == 401
    with asking(secured, {"Authorization": "Basic !!"}) as http:
        assert http.get("/subjects").status_code == 401


def test_grants_on_the_topic_decide(secured: BrokerProcess) -> None:
    with asking(secured, bearer("writer")) as http:
        made = http.post("/subjects/mine-value/versions", json={"schema": ONE})
        assert made.status_code == 200
        schema_id = made.json()["id"]
        assert http.post("/subjects/other-value/versions", json={"schema": ONE}).status_code == 403
        assert http.delete("/subjects/mine-value").status_code == 403
        assert http.put("/config", json={"compatibility": "NONE"}).status_code == 403
    with asking(secured, bearer("reader")) as http:
        assert http.get(f"/schemas/ids/{schema_id}").status_code == 200
        assert http.get("/subjects/mine-value/versions").json() == [1]
        refused = http.post("/subjects/mine-value/versions", json={"schema": TWO})
        assert (refused.status_code, refused.json()["error_code"]) == (403, 40301)
    with asking(secured, bearer("stranger")) as http:
        assert http.get("/subjects").json() == []
        assert http.get(f"/schemas/ids/{schema_id}").status_code == 404, "nor is it told that it is there"
        assert http.get("/subjects/mine-value/versions").status_code == 403
        assert http.get("/schemas").json() == []
    with asking(secured, bearer("root")) as http:
        assert http.delete("/subjects/mine-value").json() == [1]


@pytest.fixture(scope="module")
def with_users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A registry for users with passwords, for tokens, and a tenant beside the default one."""
    home = tmp_path_factory.mktemp("users")
    hashed = {
        user: base64.b64encode(hashlib.sha1(said.encode()).digest()).decode() for user, said in USERS.items()
    }
    (home / "users").write_text("".join(f"{user}:{{SHA}}{text}\n" for user, text in hashed.items()))
    settings = {
        "authentication.enabled": "true",
        "authorization.enabled": "true",
        "basicAuthConf": f"file://{home}/users",
        "token.secret.key": SECRET_URL,
        "super.user.roles": "root",
        "kafkaEnableMultiTenantMetadata": "true",
        "connection.failed.authentication.delay.ms": "1",
    }
    given = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    addresses = ("--schema-registry", "127.0.0.1:0", "--http", "127.0.0.1:0")
    with BrokerProcess(home / "data", *addresses, *given) as process:
        url = f"http://{process.served['http'][0]}/admin/v2"
        with httpx.Client(base_url=url, auth=("root", USERS["root"])) as admin:
            assert admin.put("/tenants/other", json={"allowedClusters": ["standalone"]}).is_success
            admin.put("/persistent/public/default/anns/partitions", content=b"1")
            grants = "/persistent/public/default/anns/permissions/ann"
            assert admin.post(grants, json=["produce"]).is_success
        yield process


USERS = {"root": "root's", "ann": "its: mine"}


def confluents(process: BrokerProcess, said: str) -> SchemaRegistryClient:
    return SchemaRegistryClient(
        {"url": registry_url(process), "basic.auth.user.info": said, "max.retries": 0}
    )


def test_confluents_client_comes_with_a_user_and_a_password(with_users: BrokerProcess) -> None:
    ann = confluents(with_users, f"ann:{USERS['ann']}")
    schema_id = ann.register_schema("anns-value", Schema(ONE, "AVRO"))
    assert ann.get_latest_version("anns-value").schema_id == schema_id
    with pytest.raises(SchemaRegistryError) as refused:
        ann.register_schema("roots-value", Schema(ONE, "AVRO"))
    assert refused.value.error_code == 40301, "the user is the role that grants are for"
    assert confluents(with_users, "root:root's").get_subjects() == ["anns-value"]


@pytest.mark.parametrize(
    "said",
    ["ann:root's", "ann:", "nobody:its: mine", ":its: mine", "public:basic:ann:root's", "public:token:ann"],
)
def test_a_wrong_password_gets_401(with_users: BrokerProcess, said: str) -> None:
    with pytest.raises(SchemaRegistryError) as refused:
        confluents(with_users, said).get_subjects()
    assert (refused.value.http_status_code, refused.value.error_code) == (401, 401)


def test_a_user_may_name_a_tenant_and_tokens_go_on_to_do(with_users: BrokerProcess) -> None:
    confluents(with_users, "other:basic:root:root's").register_schema("theirs-value", Schema(TWO, "AVRO"))
    assert confluents(with_users, f"other:token:{token('root')}").get_subjects() == ["theirs-value"]
    assert "theirs-value" not in confluents(with_users, "root:root's").get_subjects()
    with pytest.raises(SchemaRegistryError) as refused:
        confluents(with_users, f"other:basic:ann:{USERS['ann']}").get_subjects()
    assert refused.value.error_code == 40301, "she has no grant in that tenant"
    with asking(with_users, bearer("root")) as http:
        assert http.get("/subjects").status_code == 200


def test_references_ask_for_the_right_to_read(secured: BrokerProcess) -> None:
    """Else whoever may register could have the names in others' schemas told, and keep them from being deleted."""
    hidden = '{"type": "object", "properties": {"secret_of_others": {"type": "string"}}}'
    reference = {"name": "v.json", "subject": "others-value", "version": 1}
    missing = reference | {"subject": "nothing-value"}
    closed = '{"type": "object", "additionalProperties": false}'
    mine = {"schema": '{"$ref": "v.json"}', "schemaType": "JSON"}
    with asking(secured, bearer("root")) as http:
        body = {"schema": hidden, "schemaType": "JSON"}
        assert http.post("/subjects/others-value/versions", json=body).status_code == 200
    with asking(secured, bearer("writer")) as http:
        for each in ("/subjects/mine-value/versions", "/compatibility/subjects/mine-value/versions/latest"):
            said = [http.post(each, json=mine | {"references": [name]}) for name in (reference, missing)]
            assert {answer.status_code for answer in said} <= {422, 404}
            assert "secret_of_others" not in said[0].text
            told = [answer.text.replace("others-value", "").replace("nothing-value", "") for answer in said]
            assert told[0] == told[1], "nor is it told that it is there"
    with asking(secured, bearer("root")) as http:
        registered = http.post("/subjects/mine-value/versions", json=mine | {"references": [reference]})
        assert registered.status_code == 200
    with asking(secured, bearer("writer")) as http:
        asked = {"schema": closed, "schemaType": "JSON"}
        for path in ("/compatibility/subjects/mine-value/versions/latest", "/subjects/mine-value/versions"):
            answer = http.post(path, json=asked, params={"verbose": "true"})
            assert "you may not read" in answer.text
            assert "secret_of_others" not in answer.text
    with asking(secured, bearer("root")) as http:
        assert "secret_of_others" in http.post(path, json=asked).text
        for name in ("mine-value", "others-value"):
            assert http.delete(f"/subjects/{name}").status_code == 200
            assert http.delete(f"/subjects/{name}", params={"permanent": True}).status_code == 200
