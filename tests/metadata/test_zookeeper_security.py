"""What a file of ZooKeeper's client properties means here, and what cannot be is named with what to do."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

import pytest

from magnetar.metadata.zookeeper_security import InvalidZooKeeperConfig, ZooKeeperSecurity, untrusted
from tests.security.certificates import Authority


def written(directory: Path, text: str, name: str = "client.properties") -> str:
    file = directory / name
    file.write_text(text)
    return str(file)


def login(directory: Path, jaas: str, more: str = "") -> ZooKeeperSecurity:
    place = written(directory, jaas, "client.jaas")
    return ZooKeeperSecurity.read(written(directory, f"java.security.auth.login.config={place}\n{more}"))


def test_no_file_is_no_security() -> None:
    found = ZooKeeperSecurity.read("")
    assert (found.context(), found.user, dict(found.for_java)) == (None, "", {})


def test_both_clients_are_told_the_same(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("client")
    both = tmp_path / "both.pem"
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    found = ZooKeeperSecurity.read(
        written(
            tmp_path,
            "# house\n! rules\n\nzookeeper.client.secure = true\n"
            f"zookeeper.ssl.trustStore.location={authority.file}\nzookeeper.ssl.trustStore.type=PEM\n"
            f"zookeeper.ssl.keyStore.location={both}\nsomething.else=1\n",
        )
    )
    context = found.context()
    assert context is not None
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname
    trusted = [dict(pair for rdn in each["subject"] for pair in rdn) for each in context.get_ca_certs()]  # type: ignore[misc]
    assert [each["commonName"] for each in trusted] == ["authority"], "nobody whom the system trusts besides"
    assert found.for_java == {
        "zookeeper.client.secure": "true",
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.ssl.trustStore.location": str(authority.file),
        "zookeeper.ssl.trustStore.type": "PEM",
        "zookeeper.ssl.keyStore.location": str(both),
    }


def test_names_of_hosts_are_looked_at_unless_told_otherwise(tmp_path: Path) -> None:
    text = "zookeeper.client.secure=true\nzookeeper.ssl.hostnameVerification=false\n"
    context = ZooKeeperSecurity.read(written(tmp_path, text)).context()
    assert context is not None
    assert not context.check_hostname
    assert context.verify_mode == ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("zookeeper.ssl.trustStore.location=/a/store.jks", "store.jks must be PEM, .*keytool"),
        (
            "zookeeper.ssl.keyStore.location=/a/key.pem\nzookeeper.ssl.keyStore.type=PKCS12",
            "key.pem must be PEM, .*openssl",
        ),
        ("zookeeper.ssl.trustStore.location=/no/such.pem", "cannot be set up from /no/such.pem"),
        (
            "zookeeper.ssl.keyStore.location=/a/key.pem\nzookeeper.ssl.keyStore.passwordPath=/no/such",
            "passwordPath: .*/no/such",
        ),
    ],
)
def test_stores_that_cannot_be_are_named(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidZooKeeperConfig, match=words):
        ZooKeeperSecurity.read(written(tmp_path, f"zookeeper.client.secure=true\n{text}\n"))


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidZooKeeperConfig, match="metadataStoreConfigPath=/no/such cannot be read"):
        ZooKeeperSecurity.read("/no/such")


def test_a_login_stands_in_a_section_of_javas_file(tmp_path: Path) -> None:
    jaas = """
    Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_x="y"; };
    // Client { none };
    Client {
       org.apache.zookeeper.server.auth.DigestLoginModule required
       username="house" password="a \\"quoted\\" \\\\ secret";
    };
    Other { org.apache.zookeeper.server.auth.DigestLoginModule required username="o" password="p"; };
    /* Client { none required username="old" password="old"; }; */
    """
    found = login(tmp_path, jaas)
    assert (found.user, found.password) == ("house", 'a "quoted" \\ secret')
    assert found.for_java["zookeeper.fips-mode"] == "false", "else Java leaves the login out"
    assert "secret" not in repr(found)
    assert login(tmp_path, jaas, "zookeeper.sasl.clientconfig=Other\n").user == "o"
    assert login(tmp_path, jaas, "zookeeper.sasl.client=false\n").user == ""


@pytest.mark.parametrize(
    ("jaas", "words"),
    [
        ("Server { };", "has no section Client"),
        (
            "Client { com.sun.security.auth.module.Krb5LoginModule required; };",
            "must have a DigestLoginModule",
        ),
        (
            'Client { org.apache.zookeeper.server.auth.DigestLoginModule required username="x"; };',
            "with username and password",
        ),
    ],
)
def test_logins_that_are_not_known_are_named(jaas: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidZooKeeperConfig, match=words):
        login(tmp_path, jaas)


def test_the_example_of_rfc_2831() -> None:
    pytest.importorskip("kazoo")
    from magnetar.metadata.kazoo_client import digest_answer

    challenge = (
        b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'
    )
    answer, proof = digest_answer(
        "chris", "secret", challenge, uri="imap/elwood.innosoft.com", own="OA6MHXh6VqTrRk"
    )
    response = re.search(rb"response=(\w+)", answer)
    assert response is not None
    assert response[1] == b"d388dad90d4bbd760a152321f2143af7"
    assert proof == "ea40f60335c427b5527b84dbabcdfffd"


def test_what_a_handshake_failed_for_is_told_with_what_to_do() -> None:
    mismatch = ssl.SSLCertVerificationError(1, "")
    mismatch.verify_message = "IP address mismatch, certificate is not valid for '10.0.0.1'"
    assert "hostnameVerification=false" in untrusted("10.0.0.1:2281", mismatch)
    plain = ssl.SSLError(1, "")
    plain.reason = "WRONG_VERSION_NUMBER"
    assert "secureClientPort" in untrusted("zk:2181", plain)
