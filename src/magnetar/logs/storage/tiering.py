"""Tiered storage as the settings say that it is used, for every engine that has it."""

from __future__ import annotations

from magnetar.ledger.tiers.tiers import Tiers, TierSettings
from magnetar.settings.offload import OffloadSettings
from magnetar.settings.settings import Settings


def make_tiers(settings: Settings) -> Tiers:
    """Return tiered storage as the settings say that it is used."""
    said = settings.of(OffloadSettings)
    return Tiers(
        TierSettings(
            said.managed_ledger_offload_credential_id,
            said.managed_ledger_offload_credential_secret,
            said.managed_ledger_offload_read_buffer_size_in_bytes,
            said.managed_ledger_offload_cache_bytes,
            upload_threads=said.managed_ledger_offload_max_threads,
            read_threads=said.managed_ledger_offload_read_threads,
        )
    )
