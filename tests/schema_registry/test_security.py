"""Tokens and grants at the registry: a subject stands for its topic."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import httpx
import pytest

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
