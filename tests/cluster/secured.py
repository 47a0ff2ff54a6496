"""A cluster that talks to nobody without TLS: ZooKeeper has a secureClientPort alone, and wants a certificate and a
login; bookies want a certificate. The files are those that Pulsar's and ZooKeeper's own clients read."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.servers import Cluster, zookeeper
from tests.security.certificates import Authority

USER, PASSWORD = "house", 'a "quoted" \\ secret'


def joined(directory: Path, name: str, files: tuple[Path, Path]) -> Path:
    """Put a certificate and its key into one file, as ZooKeeper's PEM stores have them."""
    both = directory / f"{name}.pem"
    both.write_bytes(b"".join(each.read_bytes() for each in files))
    return both


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


class Secured:
    """The cluster, what its clients need, and the same with an authority that it knows nothing of."""

    def __init__(self, directory: Path, bookies: int = 2) -> None:
        self.directory = directory
        self.authority, self.stranger = Authority(directory), Authority(directory, "stranger")
        self.certificate, self.key = self.authority.sign("client")
        server = self.authority.sign("server")
        both = joined(directory, "server-store", server)
        digest = "org.apache.zookeeper.server.auth.DigestLoginModule"
        jaas = directory / "server.jaas"
        jaas.write_text(f'Server {{\n  {digest} required\n  user_{USER}="{_quoted(PASSWORD)}";\n}};\n')
        extra = (
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
            f"ssl.keyStore.location={both}\nssl.keyStore.type=PEM\n"
            f"ssl.trustStore.location={self.authority.file}\nssl.trustStore.type=PEM\nssl.clientAuth=need\n"
            "authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"
            "sessionRequireClientSASLAuth=true\n"
        )
        metadata = zookeeper(
            directory / "zookeeper",
            extra=extra,
            secure=True,
            options=[f"-Djava.security.auth.login.config={jaas}"],
        )
        self.client_config = self.config()
        given = (line.split("=", 1) for line in self.client_config.read_text().splitlines())
        of_bookies = (
            "tlsProvider=JDK\ntlsProviderFactoryClass=org.apache.bookkeeper.tls.TLSContextFactory\n"
            f"tlsClientAuthentication=true\ntlsKeyStoreType=PEM\ntlsKeyStore={server[1]}\n"
            f"tlsCertificatePath={server[0]}\ntlsTrustStoreType=PEM\ntlsTrustStore={self.authority.file}\n"
        )
        self.options = ["-Dzookeeper.fips-mode=false", *(f"-D{name}={value}" for name, value in given)]
        # Java's first handshake takes seconds where many processes start.
        self.cluster = Cluster(
            directory, bookies, metadata=metadata, extra=of_bookies, options=self.options, session_ms=30_000
        )

    def config(
        self,
        name: str = "client",
        *,
        trust: Path | None = None,
        identity: bool = True,
        password: str | None = PASSWORD,
    ) -> Path:
        """Write a file as metadataStoreConfigPath names it; None for ``password`` leaves the login out."""
        both = joined(self.directory, "client-store", (self.certificate, self.key))
        lines = [
            "zookeeper.client.secure=true",
            "zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty",
            f"zookeeper.ssl.trustStore.location={trust or self.authority.file}",
            "zookeeper.ssl.trustStore.type=PEM",
        ]
        if identity:
            lines += [f"zookeeper.ssl.keyStore.location={both}", "zookeeper.ssl.keyStore.type=PEM"]
        if password is not None:
            jaas = self.directory / f"{name}.jaas"
            jaas.write_text(
                "Client {\n  org.apache.zookeeper.server.auth.DigestLoginModule required\n"
                f'  username="{USER}" password="{_quoted(password)}";\n}};\n'
            )
            lines.append(f"java.security.auth.login.config={jaas}")
        file = self.directory / f"{name}.properties"
        file.write_text("\n".join(lines) + "\n")
        return file

    def bookies_conf(self, trust: Path | None = None) -> str:
        """Return TLS to bookies in Pulsar's words."""
        return (
            "bookkeeperTLSClientAuthentication=true\n"
            f"bookkeeperTLSTrustCertsFilePath={trust or self.authority.file}\n"
            f"bookkeeperTLSCertificateFilePath={self.certificate}\nbookkeeperTLSKeyFilePath={self.key}\n"
        )
