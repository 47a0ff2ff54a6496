"""The settings about who may connect, who a client is, and what it may do: a part of `Settings`.

Names are Pulsar's, KoP's or Kafka's own, so that files made for them work. What they mean together is told in
``docs/security.md``.
"""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.base.setting import Feed, setting
from magnetar.base.values import Kind, Rule, at_least, one_of
from magnetar.settings.principal_rules import are_rules

SASL_MECHANISMS = ("PLAIN", "OAUTHBEARER", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI")
"""Those that a file may name; which are served is told in `magnetar.kafka.sasl`."""
ANONYMOUS = "ANONYMOUS"
"""Kafka's name for clients that nobody asks who they are."""
SCRAM_MECHANISMS = frozenset({"SCRAM-SHA-256", "SCRAM-SHA-512"})


def _roles_of(principals: str) -> str:
    """Read Kafka's ``User:alice;User:bob``."""
    return ",".join(each.strip().removeprefix("User:") for each in principals.split(";") if each.strip())


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """Authentication, authorization and encryption."""

    # Who is let in.
    authentication_enabled: bool = setting(
        False,
        Kind.BOOLEAN,
        "Whether every client must authenticate. Kafka clients do so by SASL, also on listeners that are called "
        "PLAINTEXT or SSL, or by a client certificate where ssl.client.auth is required.",
    )
    authentication_providers: tuple[str, ...] = setting(
        (),
        Kind.LIST,
        "How clients may authenticate: names of Pulsar's classes, or token, tls, basic; empty for all for which "
        "keys, certificates or users are set.",
    )
    authenticate_metrics_endpoint: bool = setting(
        True,
        Kind.BOOLEAN,
        "Whether /metrics requires a login where authentication is enabled, and shows only the topics that the "
        "client may see; if not, it shows all topics to every client.",
    )
    anonymous_user_role: str = setting(
        "",
        Kind.STRING,
        "Role of clients that do not say who they are; empty lets none of them in when authentication is enabled.",
    )
    super_user_roles: tuple[str, ...] = setting(
        (),
        Kind.LIST,
        "Roles that may do everything, in every tenant and on the cluster. Kafka's super.users is User:NAME;User:NAME.",
        kafka=(Feed("super.users", _roles_of),),
    )
    proxy_roles: tuple[str, ...] = setting(
        (),
        Kind.LIST,
        "Roles of Pulsar proxies. A request through a proxy must be allowed both to the role that the proxy names"
        " and to the proxy's own.",
    )
    authenticate_original_auth_data: bool = setting(
        False,
        Kind.BOOLEAN,
        "Whether a client that a proxy names over Pulsar's protocol must prove itself too, by what the proxy forwards "
        "of it (original_auth_data; a Pulsar proxy forwards it with forwardAuthorizationCredentials). Its role is then "
        "the proven one, whatever the proxy names.",
    )
    authorization_enabled: bool = setting(
        False,
        Kind.BOOLEAN,
        "Whether roles need grants (see 'magnetar permission') or Kafka's ACLs. With Kafka's authorizer.class.name "
        "they do. Where authentication.enabled does not ask for more, clients that do not say who they are have the "
        "role ANONYMOUS.",
        kafka=(Feed("authorizer.class.name", lambda text: "true" if text.strip() else None),),
    )
    allow_everyone_if_no_acl_found: bool = setting(
        False,
        Kind.BOOLEAN,
        "Whether resources without a matching Kafka ACL or grant are open to all clients.",
    )
    authorization_provider: str = setting(
        "org.apache.pulsar.broker.authorization.PulsarAuthorizationProvider",
        Kind.STRING,
        "Class that decides; there is only this one.",
        rule=one_of("org.apache.pulsar.broker.authorization.PulsarAuthorizationProvider"),
    )
    authorization_allow_wildcards_matching: bool = setting(
        False,
        Kind.BOOLEAN,
        "Whether a grant to role `team.*` or `*.team` is one to all roles that begin or end so.",
    )

    # Tokens.
    token_secret_key: str = setting(
        "",
        Kind.PASSWORD,
        "Key of tokens signed with HS256, HS384 or HS512: file:///path, data:;base64,..., a path, or base64.",
    )
    token_public_key: str = setting(
        "",
        Kind.STRING,
        "Public key, PEM or DER, of tokens signed with RS, PS or ES; given as token.secret.key is.",
    )
    token_public_alg: str = setting(
        "RS256",
        Kind.STRING,
        "Algorithm that tokens of token.public.key have, or another of the same kind of key.",
        rule=one_of("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"),
    )
    token_jwks: str = setting(
        "",
        Kind.STRING,
        "JSON Web Key Set of public keys: file:///path, data:..., a path, or an identity provider's https://...",
        kafka=("sasl.oauthbearer.jwks.endpoint.url",),
    )
    token_jwks_refresh_ms: int = setting(
        3600000,
        Kind.LONG,
        "Time before a failed request for a key set is repeated; it doubles with each failure in a row.",
        unit="ms",
        rule=at_least(1000),
        kafka=("sasl.oauthbearer.jwks.endpoint.refresh.ms",),
    )
    token_jwks_retry_backoff_ms: int = setting(
        100,
        Kind.LONG,
        "Time before a failed request for a key set is repeated; it doubles with each failure in a row.",
        unit="ms",
        rule=at_least(1),
        kafka=("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",),
    )
    token_jwks_retry_backoff_max_ms: int = setting(
        10000,
        Kind.LONG,
        "The longest that token.jwks.retry.backoff.ms becomes.",
        unit="ms",
        rule=at_least(1),
        kafka=("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",),
    )
    token_issuers: tuple[str, ...] = setting(
        (),
        Kind.LIST,
        "Accepted issuers (claim iss) of an identity provider's tokens; empty for all whose keys are known. "
        "Without token.jwks each issuer is asked for its keys (OpenID Connect Discovery).",
        kafka=("sasl.oauthbearer.expected.issuer",),
        pulsar=("openIDAllowedTokenIssuers",),
    )
    token_audiences: tuple[str, ...] = setting(
        (),
        Kind.LIST,
        "Audiences (claim aud), one of which an identity provider's tokens must name; empty for any.",
        kafka=("sasl.oauthbearer.expected.audience",),
        pulsar=("openIDAllowedAudiences",),
    )
    token_scopes: tuple[str, ...] = setting(
        (), Kind.LIST, "Scopes that the tokens of an identity provider must all have; empty asks for none."
    )
    token_scope_claim: str = setting(
        "scope",
        Kind.STRING,
        "Claim of a token that holds its scopes: a list, or words.",
        kafka=("sasl.oauthbearer.scope.claim.name",),
    )
    token_auth_claim: str = setting(
        "sub",
        Kind.STRING,
        "Claim of a token that holds the role.",
        kafka=("sasl.oauthbearer.sub.claim.name",),
        pulsar=("openIDRoleClaim",),
    )
    token_audience_claim: str = setting(
        "", Kind.STRING, "Claim of a token that holds for whom it is made; empty asks for none."
    )
    token_audience: str = setting(
        "", Kind.STRING, "What token.audience.claim must be, or contain if it is a list."
    )
    token_allowed_clock_skew_seconds: int = setting(
        0,
        Kind.INT,
        "How much later than its end, or earlier than its beginning, a token may be used.",
        unit="seconds",
        rule=at_least(0),
        kafka=("sasl.oauthbearer.clock.skew.seconds",),
        pulsar=("openIDAcceptedTimeLeewaySeconds",),
    )

    # SASL.
    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        ("PLAIN",),
        Kind.LIST,
        "SASL mechanisms offered to Kafka clients; a warning names those that are not supported.",
        rule=one_of(*SASL_MECHANISMS),
        pulsar=("saslAllowedMechanisms",),
        by_listener=True,
    )

    # Delegation tokens.
    delegation_token_secret_key: str = setting(
        "",
        Kind.PASSWORD,
        "Secret that delegation tokens are made with, the same for all brokers; empty for no tokens.",
    )
    delegation_token_max_lifetime_ms: int = setting(
        604800000,
        Kind.LONG,
        "Time after which a delegation token ends, however often it is renewed.",
        unit="ms",
        rule=at_least(1),
    )
    delegation_token_expiry_time_ms: int = setting(
        86400000,
        Kind.LONG,
        "Time after which a delegation token ends that is not renewed.",
        unit="ms",
        rule=at_least(1),
    )
    delegation_token_expiry_check_interval_ms: int = setting(
        3600000,
        Kind.LONG,
        "Time between two looks for delegation tokens that have ended; these are of no use in between, either.",
        unit="ms",
        rule=at_least(1),
    )

    # Users with passwords.
    basic_auth_conf: str = setting(
        "",
        Kind.PASSWORD,
        "Users and hashes of their passwords, as htpasswd writes them, for Pulsar's basic authentication, HTTP "
        "and SASL PLAIN: file:///path, data:;base64,..., a path, or base64. The file is read again when it "
        "changes.",
        pulsar=("basicAuthConf",),
    )
    plain_sasl_jaas_config: str = setting(
        "",
        Kind.PASSWORD,
        "Users and their passwords as Kafka has them for SASL PLAIN: org.apache.kafka.common.security.plain."
        'PlainLoginModule required user_alice="secret" user_bob="another"; which Kafka says for each listener, as '
        "listener.name.NAME.plain.sasl.jaas.config: only these log in there by password. Pulsar's clients, HTTP and "
        "listeners without users of their own have those of all listeners, but for names with several passwords.",
        by_listener=True,
    )

    # What fails.
    connection_failed_authentication_delay_ms: int = setting(
        100,
        Kind.INT,
        "How long the answer to a failed authentication is held back.",
        unit="ms",
        rule=at_least(0),
        pulsar=("failedAuthenticationDelayMs",),
    )

    # TLS.
    tls_certificate_file_path: str = setting(
        "",
        Kind.STRING,
        "PEM file of the broker's certificate, with its chain. It is read again when it changes.",
    )
    tls_key_file_path: str = setting("", Kind.STRING, "PEM file of the certificate's private key.")
    tls_trust_certs_file_path: str = setting(
        "", Kind.STRING, "PEM file of the authorities that client certificates must come from."
    )
    tls_require_trusted_client_cert_on_connect: bool = setting(
        False, Kind.BOOLEAN, "Whether Pulsar clients must show a certificate of a trusted authority."
    )
    tls_protocols: tuple[str, ...] = setting(
        ("TLSv1.3", "TLSv1.2"),
        Kind.LIST,
        "Versions of TLS that are spoken.",
        rule=one_of("TLSv1.3", "TLSv1.2"),
        kafka=("ssl.enabled.protocols",),
        pulsar=("kopSslEnabledProtocols",),
        by_listener=True,
    )
    tls_ciphers: str = setting(
        "",
        Kind.STRING,
        "Ciphers of TLS 1.2 in OpenSSL's names, separated by colons; empty for OpenSSL's choice.",
        by_listener=True,
    )
    ssl_keystore_type: str | None = setting(
        None,
        Kind.STRING,
        "Form that ssl.keystore.location must have; where it is not given, the file tells. "
        "With JKS, as in Java, a PKCS12 store is read; one that is JKS indeed is refused, with what to do.",
        rule=Rule(
            "String must be one of: PEM, PKCS12, JKS", lambda value: value in (None, "PEM", "PKCS12", "JKS")
        ),
        pulsar=("kopSslKeystoreType",),
        by_listener=True,
    )
    ssl_keystore_location: str = setting(
        "",
        Kind.STRING,
        "File of private key and certificate chain for SSL and SASL_SSL listeners; else the tls ones are used.",
        pulsar=("kopSslKeystoreLocation",),
        by_listener=True,
    )
    ssl_keystore_password: str = setting(
        "",
        Kind.PASSWORD,
        "Password of a PKCS12 key store.",
        pulsar=("kopSslKeystorePassword",),
        by_listener=True,
    )
    ssl_keystore_certificate_chain: str = setting(
        "", Kind.PASSWORD, "The certificate chain itself, as PEM, instead of a file.", by_listener=True
    )
    ssl_keystore_key: str = setting(
        "", Kind.PASSWORD, "The private key itself, as PEM, instead of a file.", by_listener=True
    )
    ssl_key_password: str = setting(
        "", Kind.PASSWORD, "Password of the private key.", pulsar=("kopSslKeyPassword",), by_listener=True
    )
    ssl_truststore_type: str | None = setting(
        None,
        Kind.STRING,
        "Form that ssl.truststore.location must have; where it is not given, the file tells. "
        "With JKS, as in Java, a PKCS12 store is read; one that is JKS indeed is refused, with what to do.",
        rule=Rule(
            "String must be one of: PEM, PKCS12, JKS", lambda value: value in (None, "PEM", "PKCS12", "JKS")
        ),
        pulsar=("kopSslTruststoreType",),
        by_listener=True,
    )
    ssl_truststore_location: str = setting(
        "",
        Kind.STRING,
        "File of the authorities that clients' certificates must come from, for SSL and SASL_SSL listeners.",
        pulsar=("kopSslTruststoreLocation",),
        by_listener=True,
    )
    ssl_truststore_password: str = setting(
        "",
        Kind.PASSWORD,
        "Password of a PKCS12 trust store.",
        pulsar=("kopSslTruststorePassword",),
        by_listener=True,
    )
    ssl_truststore_certificates: str = setting(
        "",
        Kind.PASSWORD,
        "The trusted authorities' certificates themselves, as PEM, instead of a file.",
        by_listener=True,
    )
    ssl_client_auth: str = setting(
        "none",
        Kind.STRING,
        "Whether Kafka clients on SSL and SASL_SSL listeners show a certificate: none, requested, required.",
        rule=one_of("none", "requested", "required"),
        pulsar=(
            Feed("kopSslClientAuth", lambda text: {"true": "required", "false": "none"}.get(text, text)),
        ),
        by_listener=True,
    )

    ssl_principal_mapping_rules: str = setting(
        "",
        Kind.STRING,
        "How the name in a client's certificate becomes its role, in Kafka's rules: RULE:PATTERN/REPLACEMENT/ (with L "
        "or U at its end: in small or capital letters), or DEFAULT, the whole name; the first that fits counts, and "
        "clients that none fits are refused. Empty: the common name, as in Pulsar, or the whole name where super.users "
        "has such.",
        rule=Rule("Value must be a list of RULE:PATTERN/REPLACEMENT/[LU] or DEFAULT", are_rules),
        by_listener=True,
    )

    @property
    def knows_clients(self) -> bool:
        """Whether it matters who a client is: everybody must prove it, or is somebody whom grants name."""
        return self.authentication_enabled or self.authorization_enabled

    @property
    def unnamed_role(self) -> str:
        """The role of clients that do not say who they are; empty lets none of them in where it matters who they are.

        With an authorizer alone they are whom Kafka's ACLs call ``User:ANONYMOUS``.
        """
        only_authorizes = self.authorization_enabled and not self.authentication_enabled
        return self.anonymous_user_role or (ANONYMOUS if only_authorizes else "")

    @property
    def principal_rules(self) -> str:
        """The rules of `ssl_principal_mapping_rules` that count; empty for the common name."""
        names_whole = any("=" in each for each in self.super_user_roles)
        return self.ssl_principal_mapping_rules or ("DEFAULT" if names_whole else "")

    @property
    def has_token_keys(self) -> bool:
        """Whether any token can be good."""
        return bool(self.token_secret_key or self.token_public_key or self.token_jwks or self.token_issuers)

    @property
    def trusts_clients(self) -> bool:
        """Whether a client's certificate can be good."""
        return bool(
            self.tls_trust_certs_file_path or self.ssl_truststore_location or self.ssl_truststore_certificates
        )

    @property
    def takes_passwords(self) -> bool:
        """Whether there are users whose passwords are said as they are."""
        return bool(self.basic_auth_conf or self.plain_sasl_jaas_config)

    @property
    def takes_scram(self) -> bool:
        """Whether Kafka's clients may log in by SCRAM."""
        return not SCRAM_MECHANISMS.isdisjoint(self.sasl_enabled_mechanisms)
