"""Who is who, and who may do what: one authority for every protocol.

What a protocol calls:

    principal = broker.security.authentication.authenticate("token", data)     who it is, or AuthenticationFailed
    may(broker.security.authorization.access(role), Right.produce, topic)      what it may; True where nobody asks

`tokens` and `jwks` know JSON Web Tokens, `tls` certificates, `grants` how permissions are kept (in Pulsar's JSON),
`rights` names what there is to be allowed, `authorization` decides. `redaction` takes secrets out of texts.
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
