"""The engine "bookkeeper": ledgers on bookies, by BookKeeper's own client in a JVM inside this process.

- `engine` opens logs; `log` is one log, `appends` its writer, `reading` and `read_ahead` its readers.
- `opening`: taking a log over from another owner; `closed`: reading ledgers from bookies without the JVM.
- `bookies`, `jvm`, `jars`: the client; `bookie_tls`, `bookie_login`: its authentication; `well_being`: bookies' health.

May import: all of `ledger` but the other engines, `metadata`, `records`.
"""
