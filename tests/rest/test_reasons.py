"""What stands behind the status of a refusal: Pulsar's clients that look up topics by HTTP show nothing else."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.process import BrokerProcess

ROOT = "/admin/v2/persistent/public/default"


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    arguments = ("--pulsar", "127.0.0.1:0", "--http", "127.0.0.1:0")
    data = tmp_path_factory.mktemp("strict") / "data"
    with BrokerProcess(data, *arguments, "--set", "auto.create.topics.enable=false") as process:
        yield process


def heads(broker: BrokerProcess, *paths: str) -> list[bytes]:
    """Return the heads of the answers to requests on one connection, in their order."""
    host, _, port = broker.served["http"][0].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as asked:
        for path in paths:
            asked.sendall(f"HEAD {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        data = b""
        while data.count(b"\r\n\r\n") < len(paths):
            part = asked.recv(65536)
            assert part, data
            data += part
    return data.split(b"\r\n\r\n")[:-1]


def test_a_refusal_says_why_behind_its_status(house: BrokerProcess) -> None:
    gone, there, again = heads(house, f"{ROOT}/nothing/stats", ROOT, "/admin/v2/persistent/public/nowhere")
    assert gone.splitlines()[0] == b"HTTP/1.1 404 Topic persistent://public/default/nothing not found"
    assert there.splitlines()[0] == b"HTTP/1.1 200 OK"
    assert again.splitlines()[0] == b"HTTP/1.1 404 Namespace does not exist"


@pytest.mark.parametrize("name", ["a%0d%0aX-Evil:%20yes", "%c3%a9%00%7f%1b", "n" * 3000])
def test_what_a_name_holds_does_not_get_out_of_the_line(house: BrokerProcess, name: str) -> None:
    (head,) = heads(house, f"/{name}/x")
    line, *headers = head.split(b"\r\n")
    assert line.startswith(b"HTTP/1.1 404 ")
    assert len(line) < 450
    assert all(0x20 <= each < 0x7F for each in line)
    assert not [each for each in headers if each.lower().startswith(b"x-evil")]


def test_a_lookup_by_http_says_which_topic_is_not_there(strict: BrokerProcess) -> None:
    (head,) = heads(strict, f"{ROOT}/not-there/partitions?checkAllowAutoCreation=true")
    assert head.splitlines()[0] == b"HTTP/1.1 404 Topic persistent://public/default/not-there not found"
