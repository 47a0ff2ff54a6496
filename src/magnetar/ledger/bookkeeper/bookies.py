"""Ledgers on Apache BookKeeper's bookies, through BookKeeper's own client, for an event loop.

Everything that can lose data is its work: quorums, ensemble changes, fencing, recovery of ledgers that a writer has
left open. Ledgers are created as in Pulsar (CRC32C, its password, its custom metadata), so that a Pulsar broker opens
them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jpype

from magnetar.ledger.bookie_racks import BookiePlacement, Groups
from magnetar.ledger.bookkeeper.bookie_login import BookieLogin
from magnetar.ledger.bookkeeper.bookie_tls import BookieTls
from magnetar.ledger.bookkeeper.jvm import JavaAnswers, start_jvm
from magnetar.ledger.bookkeeper.on_their_way import OnTheirWay
from magnetar.ledger.bookkeeper.placement import (
    JavaRacks,
    LeftOut,
    all_bookies,
    policy_of,
    set_policy,
    writable_bookies,
)
from magnetar.ledger.bookkeeper.under_replication import look_at_copies
from magnetar.ledger.bookkeeper.well_being import BookiesHealth
from magnetar.ledger.errors import (
    LedgerCorrupt,
    LedgerError,
    LedgerFenced,
    LedgerNotFound,
    StorageFailed,
    StorageFull,
)
from magnetar.metadata.port import MetadataStore
from magnetar.metadata.zookeeper import ZooKeeperStore
from magnetar.metadata.zookeeper_security import ZooKeeperSecurity
from magnetar.records.compression import Buffer

Answered = Callable[[LedgerError | None], None]
_CALLBACKS = tuple(
    f"org.apache.bookkeeper.client.AsyncCallback${each}Callback"
    for each in ("Add", "Create", "Open", "Read", "Close", "Delete")
)
_UNREACHED = (-6, -8, -24)
_TLS_ADVICE = (
    "where bookies run, it may be TLS: bookkeeperTLSTrustCertsFilePath must have the authority that signed their "
    "certificates, and their tlsTrustStore the one of bookkeeperTLSCertificateFilePath"
)
_log = logging.getLogger("magnetar.ledger")
_LEFT_OUT_S = 1.0
_HANDLES = 1000  # ledgers open to be read
_MIB = 1 << 20

ERRORS: Mapping[int, tuple[type[LedgerError], str]] = {
    -6: (StorageFull, "too few bookies take entries"),
    -7: (LedgerNotFound, "there is no such ledger"),
    -25: (LedgerNotFound, "there is no such ledger"),
    -13: (LedgerNotFound, "there is no such entry"),
    -5: (LedgerCorrupt, "the digest of an entry does not fit its bytes"),
    -101: (LedgerFenced, "another owner has fenced the ledger"),
    -11: (StorageFailed, "the ledger was closed"),
    -104: (StorageFull, "a bookie is read-only: its disk is full, or failed"),
}
"""BookKeeper's return codes in storage's words; all others are ``StorageFailed``."""


def translated(code: int, what: str, advice: str = "") -> LedgerError:
    """Return BookKeeper's error as a storage error."""
    kind, words = ERRORS.get(code, (StorageFailed, ""))
    if not words:
        words = str(jpype.JClass("org.apache.bookkeeper.client.BKException").getMessage(code))
    return kind(f"{what}: {words} (BookKeeper's code {code})" + (f"; {advice}" if advice else ""))


@dataclass(frozen=True, slots=True)
class Quorums:
    """How many bookies a ledger is spread over, how many get each entry, and how many must have it."""

    ensemble: int = 2
    write: int = 2
    ack: int = 2


class Recovered(NamedTuple):
    """The content of a closed ledger: its last entry, -1 for none, and its bytes."""

    last_entry: int
    size: int


_CLASSES = (
    "org.apache.bookkeeper.conf.ClientConfiguration",
    "org.apache.bookkeeper.client.BookKeeper",
    "org.apache.bookkeeper.client.BookKeeper$DigestType",
    "org.apache.bookkeeper.client.BKException",
    "java.lang.invoke.MethodHandles",
    "io.netty.buffer.PooledByteBufAllocator",
    *_CALLBACKS,
)


def load_classes(jars: Sequence[Path], heap_bytes: int, direct_bytes: int) -> None:
    """Start the JVM and load the classes that are needed: that takes Python's lock for seconds."""
    start_jvm(jars, heap_bytes, direct_bytes)
    for each in _CLASSES:
        jpype.JClass(each)
    _ = jpype.JClass("io.netty.buffer.PooledByteBufAllocator").DEFAULT.directBuffer(16).release()


def _set_tls(conf: Any, tls: BookieTls) -> None:
    conf.setTLSProviderFactoryClass(tls.provider)
    conf.setTLSClientAuthentication(True)
    conf.setTLSCertificatePath(tls.certificate_file)
    conf.setTLSKeyStore(tls.key_file)
    conf.setTLSKeyStoreType(tls.key_type)
    conf.setTLSKeyStorePasswordPath(tls.key_password_file)
    conf.setTLSTrustStore(tls.trust_file)
    conf.setTLSTrustStoreType(tls.trust_type)
    conf.setTLSTrustStorePasswordPath(tls.trust_password_file)
    conf.setTLSCertFilesRefreshDurationSeconds(tls.refresh_s)
    conf.setHostnameVerificationEnabled(tls.verify_host)


def _whole(error: Any) -> str:
    """Return Java's text of an error and of its causes."""
    told: list[str] = []
    while error is not None and len(told) < 5:
        words = str(error.getMessage() or error)
        if not any(words in each for each in told):
            told.append(words)
        error = error.getCause()
    return ": ".join(told)


async def connected(hosts: str, root: str, session_s: float, security: ZooKeeperSecurity) -> MetadataStore:
    """Return the metadata below ``ROOT``, under which ``/ledgers`` lies; raise ``MetadataUnavailable``."""
    return await ZooKeeperStore.open(hosts, root, session_seconds=session_s, security=security)


class Bookies:
    """One client of a BookKeeper cluster. ``connect`` before use."""

    def __init__(
        self,
        hosts: str,
        root: str,
        jars: Sequence[Path],
        *,
        quorums: Quorums | None = None,
        password: bytes = b"",
        add_timeout_s: int = 30,
        heap_bytes: int = 256 * _MIB,
        direct_bytes: int = 256 * _MIB,
        max_entry_bytes: int = 32 * _MIB,
        tls: BookieTls | None = None,
        login: BookieLogin | None = None,
        properties: Mapping[str, str] | None = None,
        placement: BookiePlacement | None = None,
    ) -> None:
        """``hosts`` are those of ZooKeeper, separated by commas; ledgers lie below ``ROOT/ledgers`` there.

        ``properties`` are Java's, for its client of ZooKeeper: one process has one set of them.
        """
        self._placement = placement or BookiePlacement()
        self._racks: JavaRacks
        self._left_out: LeftOut | None = None
        self._left_out_at = 0.0
        self._groups: Groups = {}
        self._telling = asyncio.Lock()
        self._uri = f"zk+null://{hosts.replace(',', ';')}{root}/ledgers"
        self._jars = jars
        self._quorums = quorums or Quorums()
        self._password = password
        self._add_timeout_s = add_timeout_s
        self._sizes = heap_bytes, direct_bytes
        # Netty rounds up the memory of an entry, by a third at most, and what is read lies there as well.
        self.on_their_way = OnTheirWay(direct_bytes // 2)
        self._max_entry_bytes = max_entry_bytes
        self._tls = tls
        self._login = login
        self._told_of_tls = False
        self.health = BookiesHealth()
        self.metadata: Callable[[], Awaitable[MetadataStore]] | None = None
        """Connects to where the bookies are registered; set where the settings for it are known."""
        self._properties = dict(properties or {})
        self._client: Any = None
        self._answers: JavaAnswers
        self._handles: OrderedDict[int, Any] = OrderedDict()
        """Handles of closed ledgers."""

    async def connect(self) -> None:
        """Start the JVM and connect; raise ``StorageFailed``."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, start_jvm, self._jars, *self._sizes)
        self._answers = JavaAnswers(_CALLBACKS)
        try:
            self._client = await loop.run_in_executor(None, self._connected)
        except BaseException:
            self._answers.close()
            raise
        self._digest = jpype.JClass("org.apache.bookkeeper.client.BookKeeper$DigestType").CRC32C
        self._secret = jpype.JArray(jpype.JByte)(self._password)
        self._allocator = jpype.JClass("io.netty.buffer.PooledByteBufAllocator").DEFAULT

    def _connected(self) -> Any:
        for name, value in self._properties.items():
            jpype.JClass("java.lang.System").setProperty(name, value)
        conf = jpype.JClass("org.apache.bookkeeper.conf.ClientConfiguration")()
        conf.setMetadataServiceUri(self._uri)
        conf.setThrottleValue(0)  # it is 5,000 operations a second
        conf.setUseV2WireProtocol(self._tls is None)  # TLS is begun by a word of version 3
        conf.setNumIOThreads(1)
        conf.setNumWorkerThreads(1)
        conf.setNettyMaxFrameSizeBytes(self._max_entry_bytes + 64 * 1024)
        conf.setAddEntryTimeout(max(1, self._add_timeout_s // 3))
        conf.setAddEntryQuorumTimeout(self._add_timeout_s)
        conf.setReadEntryTimeout(max(1, self._add_timeout_s // 3))
        conf.setEnableDigestTypeAutodetection(True)
        conf.setTcpUserTimeoutMillis(self._add_timeout_s * 1000)
        if self._tls is not None:
            _set_tls(conf, self._tls)
        if self._login is not None:
            conf.setClientAuthProviderFactoryClass(self._login.plugin)
            if self._login.parameters_name:
                conf.setProperty(self._login.parameters_name, self._login.parameters)
        set_policy(conf, self._placement)
        self._racks = JavaRacks(with_regions=self._placement.region_aware)
        builder = jpype.JClass("org.apache.bookkeeper.client.BookKeeper").forConfig(conf)
        try:
            client = builder.dnsResolver(self._racks.resolver).build()
        except jpype.JException as error:
            raise StorageFailed(f"BookKeeper at {self._uri} cannot be used: {_whole(error)}") from error
        self._racks.policy = policy_of(client)
        if self._placement.isolation_groups:
            self._left_out = LeftOut(client)
        return client

    # -- where bookies are

    async def place_by(self, groups: Groups) -> None:
        """Choose bookies by their current racks, for new ledgers and for the replacement of bookies that fail."""
        self._groups, self._left_out_at = groups, 0.0
        if self._placement.rack_aware or self._placement.region_aware:
            async with self._telling:
                await asyncio.get_running_loop().run_in_executor(None, self._tell_racks)

    def _tell_racks(self) -> None:
        self._racks.tell(self._groups, writable_bookies(self._client))

    def _leave_out(self) -> None:
        """Exclude bookies of other groups; the available bookies are checked once a second."""
        now = time.monotonic()
        if self._left_out is not None and now - self._left_out_at > _LEFT_OUT_S:
            self._left_out_at = now
            known = writable_bookies(self._client)
            self._left_out.set(self._placement.excluded(self._groups, known, self._quorums.ensemble))

    async def ids(self) -> list[str]:
        """Return all bookies that the cluster ever had and that were not decommissioned; raise ``StorageFailed``."""
        try:
            return await asyncio.get_running_loop().run_in_executor(None, all_bookies, self._client)
        except jpype.JException as error:
            raise StorageFailed(f"bookies cannot be listed: {_whole(error)}") from error

    def failed(self, code: int, what: str) -> LedgerError:
        """Return BookKeeper's error as a storage error; if it may be TLS's fault, log it, too, once.

        BookKeeper's client treats a bookie whose handshake fails like one that is not there.
        """
        if self._tls is None or code not in _UNREACHED:
            return translated(code, what)
        if not self._told_of_tls:
            self._told_of_tls = True
            _log.error("%s: %s", what, _TLS_ADVICE)
        return translated(code, what, _TLS_ADVICE)

    # -- ledgers

    async def create(self, custom: Mapping[str, bytes] | None = None) -> BookieWriter:
        """Create a ledger; its id is higher than any before."""
        kept = jpype.JClass("java.util.HashMap")()
        for name, value in (custom or {}).items():
            kept.put(jpype.JString(name), jpype.JArray(jpype.JByte)(value))
        quorums = self._quorums
        self._leave_out()
        code, handle = await self._answers.ask(
            lambda callback, number: self._client.asyncCreateLedger(
                quorums.ensemble,
                quorums.write,
                quorums.ack,
                self._digest,
                self._secret,
                callback,
                number,
                kept,
            ),
            lambda arguments: arguments[1],
        )
        if code:
            error = self.failed(code, "no ledger could be made")
            self.health.created(code, str(error))
            raise error
        self.health.created(0, "")
        return BookieWriter(self, int(handle.getId()), handle)

    async def look_at_copies(self, *, counts: bool) -> None:
        """Count the ledgers with too few copies, if this broker is the one that ``counts``."""
        if self.metadata is not None:
            await look_at_copies(self.metadata, self.health, counts=counts)

    async def look_again(self) -> None:
        """Create a ledger and delete it, if the last one could not be written, to learn whether that has changed."""
        if self.health.trouble:
            await self.delete((await self.create()).ledger_id)

    async def recover(self, ledger_id: int) -> Recovered:
        """Fence and close a ledger, whoever the writer is, and return its final content."""
        handle = await self._opened(ledger_id, self._client.asyncOpenLedger)
        return Recovered(int(handle.getLastAddConfirmed()), int(handle.getLength()))

    async def _opened(self, ledger_id: int, how: Any) -> Any:
        code, handle = await self._answers.ask(
            lambda callback, number: how(ledger_id, self._digest, self._secret, callback, number),
            lambda arguments: arguments[1],
        )
        if code:
            raise self.failed(code, f"ledger {ledger_id} cannot be opened")
        self._keep_handle(ledger_id, handle)
        return handle

    def _keep_handle(self, ledger_id: int, handle: Any) -> None:
        self._handles[ledger_id] = handle
        if len(self._handles) > _HANDLES:
            self._handles.popitem(last=False)

    async def last_confirmed(self, ledger_id: int) -> int:
        """Return the last entry of a ledger that is known to be stored, -1 for none; its writer continues."""
        handle = await self._opened(ledger_id, self._client.asyncOpenLedgerNoRecovery)
        return int(handle.getLastAddConfirmed())

    async def read(self, ledger_id: int, first: int, last: int, *, confirmed: bool = True) -> list[bytes]:
        """Return entries of a closed ledger; not ``confirmed``: also of one that is still written."""
        handle = self._handles.get(ledger_id)
        if handle is None:
            handle = await self._opened(ledger_id, self._client.asyncOpenLedgerNoRecovery)
        return await self.read_by(handle, ledger_id, first, last, confirmed=confirmed)

    async def read_by(
        self, handle: Any, ledger_id: int, first: int, last: int, *, confirmed: bool = True
    ) -> list[bytes]:
        """Return entries by a handle of the ledger."""
        read = handle.asyncReadEntries if confirmed else handle.asyncReadUnconfirmedEntries
        code, found = await self._answers.ask(
            lambda callback, number: read(first, last, callback, number), _entries
        )
        if code:
            raise self.failed(code, f"entries {first} to {last} of ledger {ledger_id} cannot be read")
        if isinstance(found, Exception):
            raise StorageFailed(f"entries {first} to {last} of ledger {ledger_id} cannot be read: {found}")
        return found  # type: ignore[no-any-return]

    async def delete(self, ledger_id: int) -> None:
        """Delete a ledger; one that does not exist is no error."""
        self._handles.pop(ledger_id, None)
        code, _ = await self._answers.ask(
            lambda callback, number: self._client.asyncDeleteLedger(ledger_id, callback, number)
        )
        if code and not issubclass(ERRORS.get(code, (StorageFailed, ""))[0], LedgerNotFound):
            raise self.failed(code, f"ledger {ledger_id} cannot be deleted")

    async def close(self) -> None:
        """Disconnect."""
        if self._client is not None:
            client, self._client = self._client, None
            try:
                await asyncio.get_running_loop().run_in_executor(None, client.close)
            finally:
                self._answers.close()


class BookieWriter:
    """The one writer of a ledger."""

    def __init__(self, bookies: Bookies, ledger_id: int, handle: Any) -> None:
        self.ledger_id = ledger_id
        self._bookies = bookies
        self._handle = handle
        self._sent = 0

    def send(self, parts: Sequence[Buffer], answered: Answered) -> int:
        """Send an entry; return its id. ``answered`` is called with the outcome, in the order of the entries.

        Raises ``StorageFull`` if Java has no memory for it.
        """
        size, on_their_way = sum(map(len, parts)), self._bookies.on_their_way
        try:
            buffer = self._bookies._allocator.directBuffer(size)
        except jpype.JException as error:
            raise StorageFull(f"an entry of {size} bytes was not sent to bookies: {_whole(error)}") from None
        entry_id = self._sent
        self._sent += 1
        view, at = memoryview(buffer.nioBuffer(0, size)).cast("B"), 0
        for part in parts:
            view[at : at + len(part)] = part
            at += len(part)
        view.release()
        buffer.writerIndex(size)

        def told(code: int, _: Any) -> None:
            on_their_way.answered(size)
            if not code:
                if health.trouble:
                    health.appended(0, "")
                answered(None)
                return
            error = self._bookies.failed(code, f"entry {self.ledger_id}:{entry_id} was not kept")
            health.appended(code, str(error))
            answered(error)

        health = self._bookies.health
        on_their_way.sent(size)
        answers = self._bookies._answers
        self._handle.asyncAddEntry(buffer, answers.callback, answers.number(told))
        return entry_id

    async def read(self, first: int, last: int) -> list[bytes]:
        """Return entries that are stored."""
        return await self._bookies.read_by(self._handle, self.ledger_id, first, last)

    async def close(self) -> Recovered:
        """Close the ledger; return its content."""
        code, _ = await self._bookies._answers.ask(
            lambda callback, number: self._handle.asyncClose(callback, number)
        )
        if code and code != -11:
            raise translated(code, f"ledger {self.ledger_id} cannot be closed")
        ensembles = self._handle.getLedgerMetadata().getAllEnsembles()
        self._bookies.health.ensemble_changes += int(ensembles.size()) - 1
        return Recovered(int(self._handle.getLastAddConfirmed()), int(self._handle.getLength()))


def _entries(arguments: Any) -> list[bytes]:
    found = []
    entries = arguments[2]
    while entries.hasMoreElements():
        found.append(bytes(entries.nextElement().getEntry()))
    return found
