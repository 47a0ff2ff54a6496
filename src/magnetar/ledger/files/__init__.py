"""The engine "files": one append-only file per ledger, and one journal that makes all of them durable.

- `engine` opens logs; `managed` is one log, made of `appending`, `reading`, `trimming`, `compacting` and `tiering`.
- `journal` and `journal_rounds`: one group commit for all logs; `replay` and `recovery`: after a crash.
- `ledger_file`, `walk`, `checkpoints`, `flushing`, `gathering`: the file of one ledger.
- `disk`: all that is done with the file system, so that tests can fail it; `kernel_writes`: writes without threads.

May import: all of `ledger` but the other engines, `metadata`, `records`.
"""
