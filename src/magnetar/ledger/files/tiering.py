"""Ledgers of the files engine on their way to tiered storage: what `magnetar.ledger.tiers.tiering` leaves to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from magnetar.ledger.formats.info import ManagedLedgerInfo
from magnetar.ledger.tiers.tiering import LogTiering
from magnetar.ledger.values import LedgerSummary

if TYPE_CHECKING:
    from magnetar.ledger.files.checkpoints import Checkpoints
    from magnetar.ledger.files.shared import EngineParts
    from magnetar.ledger.files.state import LogState
    from magnetar.ledger.tiers.place import TierPlace
    from magnetar.ledger.tiers.tiers import Tiers


class FilesTiering(LogTiering):
    """Ledgers of the files engine."""

    def __init__(self, shared: EngineParts, state: LogState, checkpoints: Checkpoints) -> None:
        super().__init__(shared, state.log.name, state.ledger_list)
        self._parts = shared
        self._state = state
        self._checkpoints = checkpoints

    async def _export(
        self, tiers: Tiers, place: TierPlace, uuid: str, summary: LedgerSummary, attributes: Mapping[str, str]
    ) -> int:
        from magnetar.ledger.files.exporting import export

        return await tiers.writing(lambda: export(self._parts, tiers, place, uuid, summary, attributes))

    def _goes(self, info: ManagedLedgerInfo, ledger_ids: Sequence[int]) -> None:
        """Files of ledgers that lie elsewhere are removed each time the log is opened."""

    def _remove(self, ledger_ids: Sequence[int]) -> None:
        for ledger_id in ledger_ids:
            self._state.open_files.pop(ledger_id, None)
        self._parts.work.background(self._checkpoints.remove(list(ledger_ids)))
