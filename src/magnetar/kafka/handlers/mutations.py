"""The quota of topics and partitions that a request may make or delete (KIP-599), for the APIs that do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext
    from magnetar.kafka.quotas.managers import MutationQuota


def mutation_quota(context: RequestContext, first_strict: int) -> MutationQuota | None:
    """Return what the client of a request may make or delete; None if as much as it likes.

    From version ``first_strict`` on of the API, a client whose quota is used up is told so by an error.
    """
    quotas = context.kafka.quotas
    if not quotas.enabled:
        return None
    return quotas.get().mutations(context.who, strict=context.api_version >= first_strict)
