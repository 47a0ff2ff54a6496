"""Authentication and authorization: one authority for every protocol.

What a protocol calls:

    principal = security.authentication.authenticate("token", data)      who the client is, or AuthenticationFailed
    may(security.authorization.access(role), Right.produce, topic)       if it may; True where authorization is off

- `authentication`, `authorization`, `security`: these two, and all of a broker's security made from its settings.
- `tokens`, `jwks`, `keys`, `key_provider`: JSON Web Tokens, and the keys that verify them.
- `basic`, `jaas`, `scram`, `scram_users`, `delegation_tokens`, `turns`: passwords, and slow checks in turns.
- `tls`, `stores`, `certificates`: TLS contexts, files of keys and certificates, and the name in a certificate.
- `rights`: the rights. `acls`, `acl_store`, `policies`, `permissions`: Kafka's ACLs and Pulsar's grants, each in terms
  of the other; grants themselves lie in the policies of a namespace (`magnetar.topics.grants`).
- `proxied`: a Pulsar proxy that asks on behalf of a client.
- `redaction`: takes secrets out of texts.

May import: `topics`, `settings`, `base` and below.
"""

from __future__ import annotations

from magnetar.auth.authentication import Authentication, AuthenticationFailed, Principal
from magnetar.auth.authorization import Access, Authorization, may
from magnetar.auth.rights import Group, Right, Subscribed, Tenant, TransactionalId
from magnetar.topics.grants import AuthAction, AuthPolicies

__all__ = [
    "Access",
    "AuthAction",
    "AuthPolicies",
    "Authentication",
    "AuthenticationFailed",
    "Authorization",
    "Group",
    "Principal",
    "Right",
    "Subscribed",
    "Tenant",
    "TransactionalId",
    "may",
]
