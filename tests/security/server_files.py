"""Thirty configuration files in the shapes that people have: which settings stand together, and in whose words.

They are compact files of our own; the product that shows such a one stands before each. ``{store}`` and ``{trust}`` are
PKCS12 stores (called .jks, as keytool makes them), ``{pem}`` and ``{ca}`` PEM files, ``{users}`` an htpasswd file,
``{key}`` a secret key, all made by the test.
"""

from __future__ import annotations

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
_STANDARD = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_KRAFT = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
controller.listener.names=CONTROLLER
"""
_STORES = """
ssl.keystore.location={store}
ssl.keystore.password=secret
ssl.key.password=secret
ssl.truststore.location={trust}
ssl.truststore.password=secret
"""

FILES: dict[str, str] = {
    "Kafka: config/server.properties": f"""{_KRAFT}
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
log.retention.hours=168
log.segment.bytes=1073741824
""",
    "Kafka 2: config/server.properties with ZooKeeper": """
broker.id=0
listeners=PLAINTEXT://:9092
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
""",
    "Kafka: an authorizer on a listener without login": f"""{_KRAFT}
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
{_STANDARD}
allow.everyone.if.no.acl.found=true
super.users=User:ANONYMOUS
""",
    "Kafka 2: SimpleAclAuthorizer on PLAINTEXT": """
broker.id=0
listeners=PLAINTEXT://:9092
zookeeper.connect=localhost:2181
authorizer.class.name=kafka.security.auth.SimpleAclAuthorizer
allow.everyone.if.no.acl.found=true
""",
    "Kafka: documentation of ACLs, AclAuthorizer, SASL_PLAINTEXT": f"""
listeners=SASL_PLAINTEXT://:9092
security.inter.broker.protocol=SASL_PLAINTEXT
sasl.mechanism.inter.broker.protocol=PLAIN
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config={_PLAIN} username="admin" password="admin-secret" \\
  user_admin="admin-secret" user_alice="alice-secret";
authorizer.class.name=kafka.security.authorizer.AclAuthorizer
super.users=User:admin
""",
    "Kafka: documentation of SSL": f"""
listeners=PLAINTEXT://:9092,SSL://:9093
{_STORES}
ssl.client.auth=required
ssl.enabled.protocols=TLSv1.2,TLSv1.3
ssl.keystore.type=JKS
ssl.truststore.type=JKS
""",
    "Kafka: documentation of SSL, PEM text": """
listeners=SSL://:9093
ssl.keystore.type=PEM
ssl.keystore.key={key_text}
ssl.keystore.certificate.chain={certificate_text}
ssl.truststore.type=PEM
ssl.truststore.certificates={ca_text}
ssl.client.auth=required
""",
    "Kafka: documentation of ACLs over SSL, names mapped": f"""
listeners=SSL://:9093
security.inter.broker.protocol=SSL
{_STORES}
ssl.client.auth=required
ssl.principal.mapping.rules=RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,\\
RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT
{_STANDARD}
super.users=User:broker
""",
    "Kafka: documentation of SCRAM": f"""
listeners=SASL_SSL://:9093
security.inter.broker.protocol=SASL_SSL
sasl.mechanism.inter.broker.protocol=SCRAM-SHA-256
sasl.enabled.mechanisms=SCRAM-SHA-256
listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config={_SCRAM} username="admin" password="admin-secret";
{_STORES}
""",
    "Kafka: documentation of OAUTHBEARER": f"""
listeners=SASL_SSL://:9093
sasl.enabled.mechanisms=OAUTHBEARER
listener.name.sasl_ssl.oauthbearer.sasl.jaas.config=\\
org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;
listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class=\\
org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler
sasl.oauthbearer.jwks.endpoint.url=https://127.0.0.1:9/jwks
sasl.oauthbearer.expected.audience=kafka
{_STORES}
""",
    "Kafka: documentation of listeners, several mechanisms": f"""
listeners=CLIENT://:9092,INTERNAL://:9093,CONTROLLER://:9094
{_KRAFT}
inter.broker.listener.name=INTERNAL
listener.security.protocol.map=CLIENT:SASL_SSL,INTERNAL:SSL,CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
listener.name.client.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.client.scram-sha-512.sasl.jaas.config={_SCRAM};
listener.name.internal.ssl.client.auth=required
{_STORES}
""",
    "Kafka: documentation of delegation tokens": f"""
listeners=SASL_PLAINTEXT://:9092
sasl.enabled.mechanisms=SCRAM-SHA-256
delegation.token.secret.key=secret-of-all-brokers
delegation.token.max.lifetime.ms=604800000
{_STANDARD}
super.users=User:admin
""",
    "Confluent: cp-kafka with two listeners": f"""{_KRAFT}
listeners=PLAINTEXT://0.0.0.0:29092,CONTROLLER://0.0.0.0:29093,PLAINTEXT_HOST://0.0.0.0:9092
advertised.listeners=PLAINTEXT://broker:29092,PLAINTEXT_HOST://localhost:9092
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
confluent.license.topic.replication.factor=1
confluent.support.metrics.enable=false
transaction.state.log.min.isr=1
""",
    "Confluent: cp-demo, three listeners, users each": f"""
listeners=INTERNAL://:9092,TOKEN://:9093,SSL://:9094,CLEAR://:9095
listener.security.protocol.map=INTERNAL:SASL_PLAINTEXT,TOKEN:SASL_SSL,SSL:SSL,CLEAR:PLAINTEXT
inter.broker.listener.name=INTERNAL
sasl.mechanism.inter.broker.protocol=PLAIN
sasl.enabled.mechanisms=PLAIN,OAUTHBEARER
listener.name.internal.sasl.enabled.mechanisms=PLAIN
listener.name.internal.plain.sasl.jaas.config={_PLAIN} username="admin" password="admin-secret" \\
  user_admin="admin-secret" user_mds="mds-secret";
listener.name.token.sasl.enabled.mechanisms=PLAIN
listener.name.token.plain.sasl.jaas.config={_PLAIN} user_client="client-secret" user_admin="another";
listener.name.ssl.ssl.client.auth=required
listener.name.ssl.ssl.principal.mapping.rules=RULE:^CN=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT
{_STORES}
authorizer.class.name=io.confluent.kafka.security.authorizer.ConfluentServerAuthorizer
confluent.authorizer.access.rule.providers=CONFLUENT,ZK_ACL
super.users=User:admin;User:mds;User:ANONYMOUS
""",
    "Confluent: documentation of ACLs, an authorizer and clients in the clear": """
listeners=PLAINTEXT://:9092
authorizer.class.name=kafka.security.authorizer.AclAuthorizer
super.users=User:ANONYMOUS
zookeeper.connect=localhost:2181
zookeeper.set.acl=true
""",
    "Confluent: documentation of mutual TLS, key store of a listener": """
listeners=INTERNAL://:9092,EXTERNAL://:9093
listener.security.protocol.map=INTERNAL:PLAINTEXT,EXTERNAL:SSL
inter.broker.listener.name=INTERNAL
listener.name.external.ssl.keystore.location={store}
listener.name.external.ssl.keystore.password=secret
listener.name.external.ssl.key.password=secret
listener.name.external.ssl.keystore.type=PKCS12
listener.name.external.ssl.truststore.location={trust}
listener.name.external.ssl.truststore.password=secret
listener.name.external.ssl.client.auth=required
""",
    "Strimzi: plain, tls and replication with simple authorization": f"""{_KRAFT}
listeners=REPLICATION-9091://0.0.0.0:9091,PLAIN-9092://0.0.0.0:9092,TLS-9093://0.0.0.0:9093
advertised.listeners=REPLICATION-9091://my-cluster-0.brokers:9091,PLAIN-9092://my-cluster-0.brokers:9092,\\
TLS-9093://my-cluster-0.brokers:9093
listener.security.protocol.map=CONTROLPLANE-9090:SSL,REPLICATION-9091:SSL,PLAIN-9092:SASL_PLAINTEXT,TLS-9093:SSL
inter.broker.listener.name=REPLICATION-9091
sasl.enabled.mechanisms=
ssl.endpoint.identification.algorithm=HTTPS
listener.name.controlplane-9090.ssl.keystore.location=/tmp/none.p12
listener.name.replication-9091.ssl.keystore.location={{store}}
listener.name.replication-9091.ssl.keystore.password=secret
listener.name.replication-9091.ssl.keystore.type=PKCS12
listener.name.replication-9091.ssl.truststore.location={{trust}}
listener.name.replication-9091.ssl.truststore.password=secret
listener.name.replication-9091.ssl.truststore.type=PKCS12
listener.name.replication-9091.ssl.client.auth=required
listener.name.plain-9092.scram-sha-512.sasl.jaas.config={_SCRAM};
listener.name.plain-9092.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.tls-9093.ssl.client.auth=required
listener.name.tls-9093.ssl.truststore.type=PEM
listener.name.tls-9093.ssl.truststore.location={{ca}}
listener.name.tls-9093.ssl.keystore.location={{store}}
listener.name.tls-9093.ssl.keystore.password=secret
listener.name.tls-9093.ssl.keystore.type=PKCS12
{_STANDARD}
super.users=User:CN=my-cluster-kafka,O=io.strimzi;User:CN=my-cluster-entity-operator,O=io.strimzi;User:CN=broker
principal.builder.class=io.strimzi.kafka.OAuthKafkaPrincipalBuilder
""",
    "Strimzi: no authentication, certificates as PEM files": """
listeners=PLAIN-9092://0.0.0.0:9092,TLS-9093://0.0.0.0:9093
advertised.listeners=PLAIN-9092://pod:9092,TLS-9093://pod:9093
listener.security.protocol.map=PLAIN-9092:PLAINTEXT,TLS-9093:SSL
listener.name.tls-9093.ssl.keystore.type=PEM
listener.name.tls-9093.ssl.keystore.location={pem}
listener.name.tls-9093.ssl.client.auth=none
broker.rack=zone-1
replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector
""",
    "Bitnami: KRaft, clients in the clear": f"""{_KRAFT}
listeners=PLAINTEXT://:9092,CONTROLLER://:9093,EXTERNAL://:9094
advertised.listeners=PLAINTEXT://kafka:9092,EXTERNAL://127.0.0.1:9094
listener.security.protocol.map=CONTROLLER:PLAINTEXT,EXTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT
auto.create.topics.enable=true
max.message.bytes=1000012
""",
    "Bitnami: SASL for clients, users of two listeners": f"""{_KRAFT}
listeners=CLIENT://:9092,INTERNAL://:9094,CONTROLLER://:9093
listener.security.protocol.map=CLIENT:SASL_PLAINTEXT,INTERNAL:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT
inter.broker.listener.name=INTERNAL
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
sasl.mechanism.inter.broker.protocol=PLAIN
sasl.mechanism.controller.protocol=PLAIN
listener.name.client.plain.sasl.jaas.config={_PLAIN} user_user1="one" user_inter_broker_user="two";
listener.name.internal.plain.sasl.jaas.config={_PLAIN} username="inter_broker_user" password="two" \\
  user_inter_broker_user="two" user_user1="one";
listener.name.controller.plain.sasl.jaas.config={_PLAIN} username="controller_user" password="three" \\
  user_controller_user="three";
listener.name.client.scram-sha-256.sasl.jaas.config={_SCRAM};
{_STANDARD}
allow.everyone.if.no.acl.found=false
super.users=User:inter_broker_user;User:controller_user
""",
    "Bitnami: TLS with PEM": """
listeners=CLIENT://:9092
listener.security.protocol.map=CLIENT:SSL
ssl.keystore.type=PEM
ssl.keystore.location={pem}
ssl.truststore.type=PEM
ssl.truststore.location={ca}
ssl.client.auth=requested
""",
    "Aiven, Instaclustr and the like: SASL_SSL and SSL beside it": f"""
listeners=CLIENTS://:9092,CERTIFICATES://:9093,INTERNAL://:9094
listener.security.protocol.map=CLIENTS:SASL_SSL,CERTIFICATES:SSL,INTERNAL:PLAINTEXT
inter.broker.listener.name=INTERNAL
listener.name.clients.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256
listener.name.clients.plain.sasl.jaas.config={_PLAIN} user_avnadmin="secret";
listener.name.clients.connections.max.reauth.ms=3600000
listener.name.certificates.ssl.client.auth=required
{_STORES}
{_STANDARD}
super.users=User:avnadmin
""",
    "Pulsar 2.8: standalone.conf": """
zookeeperServers=
configurationStoreServers=
brokerServicePort=6650
webServicePort=8080
bindAddress=0.0.0.0
advertisedAddress=localhost
clusterName=standalone
authenticationEnabled=false
authorizationEnabled=false
authorizationAllowWildcardsMatching=false
superUserRoles=
brokerDeduplicationEnabled=false
managedLedgerDefaultEnsembleSize=1
""",
    "Pulsar 4: standalone.conf": """
metadataStoreUrl=
configurationMetadataStoreUrl=
brokerServicePort=6650
brokerServicePortTls=
webServicePort=8080
webServicePortTls=
bindAddress=0.0.0.0
bindAddresses=
advertisedAddress=localhost
advertisedListeners=
clusterName=standalone
proxyRoles=
authenticateOriginalAuthData=false
authenticationEnabled=false
authenticationProviders=
authorizationEnabled=false
topicLevelPoliciesEnabled=true
defaultNumberOfNamespaceBundles=4
""",
    "Pulsar: documentation of JWT": """
brokerServicePort=6650
webServicePort=8080
authenticationEnabled=true
authorizationEnabled=true
authenticationProviders=org.apache.pulsar.broker.authentication.AuthenticationProviderToken
superUserRoles=admin,proxy
proxyRoles=proxy
brokerClientAuthenticationPlugin=org.apache.pulsar.client.impl.auth.AuthenticationToken
brokerClientAuthenticationParameters=token:none
tokenSecretKey=file://{key}
""",
    "Pulsar: documentation of TLS authentication": """
brokerServicePort=6650
brokerServicePortTls=6651
webServicePort=8080
webServicePortTls=8443
tlsCertificateFilePath={certificate}
tlsKeyFilePath={private}
tlsTrustCertsFilePath={ca}
tlsRequireTrustedClientCertOnConnect=true
tlsAllowInsecureConnection=false
authenticationEnabled=true
authenticationProviders=org.apache.pulsar.broker.authentication.AuthenticationProviderTls
authorizationEnabled=true
superUserRoles=admin
""",
    "Pulsar: documentation of basic authentication": """
brokerServicePort=6650
webServicePort=8080
authenticationEnabled=true
authenticationProviders=org.apache.pulsar.broker.authentication.AuthenticationProviderBasic
basicAuthConf=file://{users}
authorizationEnabled=true
superUserRoles=superuser
""",
    "KoP: standalone.conf with Kafka beside Pulsar": """
messagingProtocols=kafka
protocolHandlerDirectory=
allowAutoTopicCreationType=partitioned
kafkaListeners=PLAINTEXT://127.0.0.1:9092
kafkaAdvertisedListeners=PLAINTEXT://127.0.0.1:9092
brokerEntryMetadataInterceptors=org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor
brokerDeleteInactiveTopicsEnabled=false
brokerServicePort=6650
webServicePort=8080
entryFormat=pulsar
""",
    "KoP: broker.conf with SASL and tenants": """
messagingProtocols=kafka
kafkaListeners=SASL_PLAINTEXT://0.0.0.0:9092
kafkaAdvertisedListeners=SASL_PLAINTEXT://kop:9092
saslAllowedMechanisms=PLAIN,OAUTHBEARER
kafkaEnableMultiTenantMetadata=true
kafkaTransactionCoordinatorEnabled=true
authenticationEnabled=true
authorizationEnabled=true
authenticationProviders=org.apache.pulsar.broker.authentication.AuthenticationProviderToken
tokenSecretKey=file://{key}
superUserRoles=admin
brokerServicePort=6650
webServicePort=8080
""",
    "KoP: broker.conf with SSL": """
messagingProtocols=kafka
kafkaListeners=kafka_internal://127.0.0.1:9092,kafka_external://127.0.0.1:9093
kafkaProtocolMap=kafka_internal:PLAINTEXT,kafka_external:SSL
kafkaAdvertisedListeners=kafka_internal://127.0.0.1:9092,kafka_external://localhost:9093
kopSslKeystoreType=JKS
kopSslKeystoreLocation={store}
kopSslKeystorePassword=secret
kopSslTruststoreLocation={trust}
kopSslTruststorePassword=secret
kopSslClientAuth=true
entryFormat=kafka
""",
}
