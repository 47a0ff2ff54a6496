"""The settings of tiered storage, by Pulsar's names: where full ledgers go, when, and how they are read."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.base.setting import Feed, HandlerSettings, setting
from magnetar.base.values import MAX_INT, Kind, Rule, at_least, between, one_of

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class OffloadSettings(HandlerSettings):
    """Tiered storage."""

    managed_ledger_offload_driver: str = setting(
        "",
        Kind.STRING,
        "Where ledgers are offloaded to unless a namespace or a topic says: aws-s3 or S3 (a bucket of S3, or of what "
        "speaks like it), filesystem (a directory); empty for nowhere.",
        rule=one_of("", "aws-s3", "S3", "filesystem"),
    )
    managed_ledger_offload_bucket: str = setting(
        "", Kind.STRING, "Bucket of the drivers aws-s3 and S3.", pulsar=("s3ManagedLedgerOffloadBucket",)
    )
    managed_ledger_offload_region: str = setting(
        "", Kind.STRING, "Region of the bucket.", pulsar=("s3ManagedLedgerOffloadRegion",)
    )
    managed_ledger_offload_service_endpoint: str = setting(
        "",
        Kind.STRING,
        "Address of what speaks like S3, as `https://HOST:PORT`; empty for AWS.",
        pulsar=("s3ManagedLedgerOffloadServiceEndpoint",),
    )
    managed_ledger_offload_prefix: str = setting(
        "",
        Kind.STRING,
        "What stands before the keys of objects, where several clusters share a bucket. A Pulsar broker knows no "
        "prefix, and would not find what lies below one.",
    )
    managed_ledger_offload_credential_id: str = setting(
        "",
        Kind.STRING,
        "Id of the access key; empty for what the environment says (`AWS_ACCESS_KEY_ID`, a web identity, the "
        "machine's role).",
        pulsar=("s3ManagedLedgerOffloadCredentialId",),
    )
    managed_ledger_offload_credential_secret: str = setting(
        "", Kind.PASSWORD, "Secret of the access key.", pulsar=("s3ManagedLedgerOffloadCredentialSecret",)
    )
    file_system_uri: str = setting(
        "",
        Kind.STRING,
        "Directory of the driver filesystem, as `file:///DIRECTORY`.",
        rule=Rule(
            "Value must be file:///DIRECTORY", lambda uri: uri == "" or str(uri).startswith("file:///")
        ),
        pulsar=("fileSystemURI",),
    )
    managed_ledger_offload_threshold_bytes: int = setting(
        -1,
        Kind.LONG,
        "Size of a log past which its older ledgers are offloaded; 0 for each that is full, -1 for only when asked.",
        unit="bytes",
        rule=at_least(-1),
        pulsar=("managedLedgerOffloadAutoTriggerSizeThresholdBytes", "managedLedgerOffloadThresholdInBytes"),
    )
    managed_ledger_offload_threshold_seconds: int = setting(
        -1,
        Kind.LONG,
        "Age past which full ledgers are offloaded; -1 for no such bound.",
        unit="s",
        rule=at_least(-1),
        pulsar=("managedLedgerOffloadThresholdInSeconds",),
    )
    managed_ledger_offload_deletion_lag_ms: int = setting(
        14_400_000,
        Kind.LONG,
        "How long offloaded ledgers are retained locally as well; -1 for as long as they are retained at all.",
        unit="ms",
        rule=at_least(-1),
        pulsar=("managedLedgerOffloadDeletionLagInMillis",),
    )
    managed_ledger_offload_max_threads: int = setting(
        2, Kind.INT, "Ledgers that are written to tiered storage at the same time.", rule=between(1, 64)
    )
    managed_ledger_offload_read_threads: int = setting(
        4,
        Kind.INT,
        "Requests to tiered storage that may be under way at the same time for readers.",
        rule=between(1, 256),
    )
    managed_ledger_offload_read_buffer_size_in_bytes: int = setting(
        _MIB,
        Kind.INT,
        "Size of a block of what is offloaded from now on: what one read brings at least.",
        unit="bytes",
        rule=between(4096, 64 * _MIB),
        pulsar=("s3ManagedLedgerOffloadReadBufferSizeInBytes",),
    )
    managed_ledger_offload_cache_bytes: int = setting(
        32 * _MIB,
        Kind.INT,
        "What blocks that were read from tiered storage, or ahead of readers, may take; counted in "
        "`memory.requests.bytes`.",
        unit="bytes",
        rule=between(_MIB, MAX_INT),
    )
    remote_log_manager_task_interval_ms: int = setting(
        30_000,
        Kind.LONG,
        "Time between two looks for ledgers that are to be offloaded, or to leave this disk or tiered storage.",
        unit="ms",
        rule=at_least(1),
        kafka=(Feed("remote.log.manager.task.interval.ms"),),
    )
