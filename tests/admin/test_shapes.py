"""The names in ``--json`` are a promise to scripts: adding one is fine, losing or renaming one is not."""

from __future__ import annotations

from dataclasses import fields

import pytest

from magnetar.admin import configs, explain, groups, ledgers_of, topics
from magnetar.admin.reasons import Reason, Why
from magnetar.cli.produce import ProduceReport

PROMISED: dict[type, str] = {
    topics.TopicRow: "name partitions internal size",
    topics.TopicDetail: "name topic_id internal flush partitions configs",
    topics.PartitionRow: "partition leader first next records size",
    topics.TopicsDeleted: "deleted",
    topics.Trimmed: "topic first",
    groups.GroupRow: "group state protocol_type",
    groups.GroupDetail: "group state protocol members partitions total_lag",
    groups.MemberRow: "member client host instance partitions",
    groups.LagRow: "topic partition committed first end lag member",
    groups.Sought: "group dry_run partitions",
    groups.SeekRow: "topic partition before after",
    groups.GroupsDeleted: "deleted",
    groups.OffsetsDeleted: "group partitions",
    configs.Configs: "kind name configs",
    configs.ConfigRow: "name value source read_only documentation",
    configs.SettingRow: "name default unit while_running also documentation",
    explain.Explained: "topic partition offset ledger entry batch_index entry_format append_time publish_time "
    "entry_size file batch record transaction groups_past groups_before "
    "message_id message",
    explain.MessageFacts: "producer_name sequence_id compression messages batched chunk encrypted marker",
    explain.FilePlace: "path position size",
    explain.BatchFacts: "base_offset last_offset records size codec timestamp_type base_timestamp max_timestamp "
    "producer_id producer_epoch base_sequence transactional control",
    explain.RecordFacts: "timestamp sequence key value headers",
    explain.HeaderPreview: "key value",
    explain.Preview: "text size",
    explain.GroupAt: "group committed commit_time",
    ledgers_of.PartitionLedgers: "topic partition first_offset next_offset flush ledgers",
    ledgers_of.LedgerRow: "ledger first_offset last_offset entries size max_timestamp created sealed",
    Why: "about reason says next_step facts",
    ProduceReport: "topic records size seconds next",
}


@pytest.mark.parametrize("kind", PROMISED, ids=lambda kind: kind.__name__)
def test_names_are_kept(kind: type) -> None:
    assert {field.name for field in fields(kind)} >= set(PROMISED[kind].split())  # type: ignore[arg-type]


def test_reasons_are_kept() -> None:
    promised = (
        "no-topic no-partition damaged disk-full disk-failed fenced flush-slow unreadable "
        "tiered-storage-failed never-written "
        "emptied idle moving coordinator-loading no-group no-members waits-for-join waits-for-sync "
        "overtaken-by-retention ahead-of-log member-silent unassigned not-committing caught-up"
    )
    assert {str(reason) for reason in Reason} >= set(promised.split())
