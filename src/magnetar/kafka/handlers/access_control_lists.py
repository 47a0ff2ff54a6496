"""What all three requests about ACLs are told: there are none, as of a Kafka without an authorizer.

What clients may do here is granted in Pulsar's words, by tenant, namespace and topic. Tools that only look for ACLs,
such as MirrorMaker 2, know SECURITY_DISABLED for an answer and go on; an API that is not served stops them.
"""

from __future__ import annotations

from typing import Final

from magnetar.wire.kafka.errors import ErrorCode

CODE: Final = ErrorCode.SECURITY_DISABLED
MESSAGE: Final = (
    "No Authorizer is configured: grants are those of Pulsar's namespaces and topics "
    "(pulsar-admin namespaces grant-permission)."
)
