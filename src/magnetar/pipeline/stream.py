"""What a streaming query asks on the driver: where it begins, how far it goes next, and what that means in slices."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

from magnetar.ledger.files.leases import HeldLease
from magnetar.ledger.port import wall_clock_ms
from magnetar.pipeline.admission import Delay, admit
from magnetar.pipeline.history import Marks, changed, marks_before, said_of_shorter, shorter
from magnetar.pipeline.options import Offsets, SourceOptions, TopicPartition
from magnetar.pipeline.plan import Plan
from magnetar.pipeline.port import Slice
from magnetar.pipeline.progress import from_json, ids_of, marks_of, to_json
from magnetar.pipeline.progress_group import ProgressGroup, progress_group
from magnetar.pipeline.watermarks import broker_address
from magnetar.topics.names import Naming

Json = dict[str, Any]
_NAMING = Naming()
_BATCH_PIN_MS = 600_000


class Stream:
    """The driver's side of one running query."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._delay = Delay(options.min_offsets_per_trigger, options.max_trigger_delay_ms)
        self._target: Plan | None = None
        self._seen: Json | None = None
        self._judged: Marks = {}
        """The newest marks that this process made or has compared with the topic."""
        self._lease: HeldLease | None = None
        self._group: ProgressGroup | None = None

    def initial(self) -> Json:
        """Return where a new query begins."""
        plan = Plan(self._options)
        return to_json(plan.starts(), plan.ids)

    def default_limit(self) -> ReadLimit:
        """Return what a trigger may take, as the options say it."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def aim(self) -> None:
        """Go no further than what is visible now (Trigger.AvailableNow)."""
        self._target = self._look()

    def next(self, start: Json, limit: ReadLimit) -> Json:
        """Return how far the next batch goes; ``start`` itself where there is nothing to do yet."""
        plan = self._target or self._look()
        known = from_json(start)
        base = self._base(plan, start)
        ends = plan.latest()
        back = self._went_back(plan, base)
        # A partition that was emptied is for `slices` to judge. Offsets go back only with their topic.
        ends = {which: end if which in back else max(end, base[which]) for which, end in ends.items()}
        self._seen = to_json({**known, **ends}, plan.ids)
        self._hold(base)
        self._show(base)
        waiting = sum(max(end - base[which], 0) for which, end in ends.items())
        if self._target is None and not isinstance(limit, ReadAllAvailable) and self._delay.waits(waiting):
            return start
        if isinstance(limit, ReadMaxRows):
            ends = admit(base, ends, limit.max_rows)
        return to_json({**known, **ends}, {**ids_of(start), **plan.ids}, self._marks(plan, start, base, ends))

    def latest(self) -> Json:
        """Return the latest offsets, as the last look of this trigger saw them."""
        if self._seen is None:
            plan = self._look()
            self._seen = to_json(plan.latest(), plan.ids)
        return self._seen

    def slices(self, start: Json, end: Json) -> list[Slice]:
        """Cut a batch into slices; it may be one that an earlier run of the query planned."""
        plan = self._look()
        base = self._base(plan, start, end)
        back = self._went_back(plan, base)
        ends = {which: at for which, at in from_json(end).items() if not at <= back.get(which, -1)}
        self._compare(plan, marks_of(start))
        self._compare(plan, marks_of(end))
        self._hold(base)
        return plan.slices(base, ends)

    def done(self, end: Json) -> None:
        """Note that everything before ``end`` is where it should be."""
        if self._lease is not None:
            self._hold(from_json(end))
        self._show(from_json(end))

    def close(self) -> None:
        """Need nothing any more."""
        if self._group is not None:
            self._group.close()
            self._group = None
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    def _look(self) -> Plan:
        return Plan(self._options, missing=not self._options.fail_on_data_loss)

    def _base(self, plan: Plan, start: Json, end: Json | None = None) -> Offsets:
        """Return where to go on in each partition: where ``start`` says, if it speaks of the same topic."""
        known, ids = from_json(start), ids_of(start)
        planned = ids_of(end or {})
        self._check_topics(plan, known)
        for topic in sorted(ids.keys() & plan.ids.keys()):
            if plan.ids[topic] != ids[topic]:
                plan.lost(f"topic {topic} was deleted and made anew since offset {_of(known, topic)}")
            elif topic in planned and planned[topic] != plan.ids[topic]:
                plan.lost(f"topic {topic} was deleted and made anew since the batch was planned")
        return {
            **{which: offset for which, offset in known.items() if which not in plan.visible},
            **{
                which: known[which]
                if which in known and ids.get(which.topic, plan.ids[which.topic]) == plan.ids[which.topic]
                else visible.first
                for which, visible in plan.visible.items()
            },
        }

    def _went_back(self, plan: Plan, base: Offsets) -> Offsets:
        """Return the partitions that end before what was read of them, and where; raise ``DataLost``, or warn."""
        back = shorter(plan, base)
        for which, end in back.items():
            plan.lost(said_of_shorter(which, base[which], end))
        return back

    def _compare(self, plan: Plan, marks: Marks) -> None:
        """Raise ``DataLost``, or warn, where a topic has another history than the one that was read.

        A mark that stands behind others of its partition since is compared: what follows it is about to be read.
        """
        due = {which: mark for which, mark in marks.items() if self._judged.get(which) != mark}
        self._judged |= due
        for what in changed(plan, due).values():
            plan.lost(what)

    def _marks(self, plan: Plan, start: Json, base: Offsets, ends: Offsets) -> Marks:
        """Return the marks to keep beside ``ends``: new ones where there is more, those of before elsewhere."""
        moved = {which: end for which, end in ends.items() if end != base[which]}
        # A target is a look of earlier: ledgers that it knows may be gone.
        made = marks_before(plan if self._target is None else self._look(), moved) if moved else {}
        kept = {w: m for w, m in marks_of(start).items() if m.offset < ends.get(w, m.offset + 1)}
        self._judged |= made
        return {**kept, **made}

    def _check_topics(self, plan: Plan, known: Offsets) -> None:
        """Say so where the checkpoint is one of other topics than the options name."""
        wanted = {which.topic for which in plan.visible}
        foreign = sorted({which.topic for which in known} - wanted)
        if not foreign:
            return
        if wanted and not wanted & {which.topic for which in known}:
            raise ValueError(
                f"the checkpoint is one of {', '.join(foreign)}, but the query reads {', '.join(sorted(wanted))}: "
                "give it a checkpointLocation of its own, or subscribe to the topics of the checkpoint"
            )
        plan.lost(f"topics of the checkpoint are gone or not subscribed to any more: {', '.join(foreign)}")

    def _show(self, done: Mapping[TopicPartition, int]) -> None:
        """Show Kafka's tools how far the query is, if it was asked to (``progressGroup``)."""
        if self._options.progress_group is None:
            return
        if self._group is None:
            self._group = progress_group(self._options)
        self._group.report(done)

    def _hold(self, needs: Mapping[TopicPartition, int]) -> None:
        """Keep retention from what lies behind these offsets, while this process lives."""
        if self._options.data is None or not self._options.pin:
            return
        named = _named(needs)
        try:
            if self._lease is None:
                self._lease = HeldLease(self._options.data, named)
            else:
                self._lease.move(named)
        except OSError as error:
            _not_pinned(error)


def hold_for_a_while(options: SourceOptions, pieces: Sequence[Slice]) -> None:
    """Keep retention for ten minutes from what a batch is going to read.

    Nobody tells this side when a batch has ended. A task that has begun keeps its ledger anyway: it has the file open.
    """
    if options.data is None or not options.pin or broker_address(options.data) is None:
        return
    needs: Offsets = {}
    for piece in pieces:
        which = TopicPartition(piece.topic, piece.partition)
        needs[which] = min(piece.low, needs.get(which, piece.low))
    try:
        HeldLease(options.data, _named(needs), until_ms=wall_clock_ms() + _BATCH_PIN_MS).leave()
    except OSError as error:
        _not_pinned(error)


def _named(needs: Mapping[TopicPartition, int]) -> dict[str, int]:
    return {
        _NAMING.parse(which.topic).ledger_name(which.partition): offset for which, offset in needs.items()
    }


def _not_pinned(error: OSError) -> None:
    warnings.warn(f"retention is not held up: {error}. pin=false says that this is meant", stacklevel=3)


def _of(offsets: Offsets, topic: str) -> str:
    return str({which.partition: offset for which, offset in offsets.items() if which.topic == topic})
