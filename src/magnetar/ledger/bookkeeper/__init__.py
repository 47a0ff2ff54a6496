"""The engine "bookkeeper": ledgers on bookies, by BookKeeper's own client in a JVM inside this process.

- `engine` opens logs; `log` is one log, `appends` what is on its way, `reading` and `read_ahead` how it is read.
- `opening`: taking a log over from another owner; `closed`: reading ledgers from bookies without the JVM.
- `bookies`, `jvm`, `jars`: the client; `bookie_tls`, `bookie_login`: how it is let in; `well_being`: do bookies answer.

May import: all of `ledger` but the other engines, `metadata`, `records`.
"""
