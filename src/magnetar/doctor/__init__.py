"""Is all that was stored still there, and whole? Checking and mending data directories and clusters.

- `ledgers`, `ledgers_cluster`, `ledgers_tiers`: every byte of a data directory, every copy on the bookies, every object
  in tiered storage, against what the metadata say. Nothing is changed.
- `ledgers_repair`, `ledgers_cluster_repair`: mending what those found. Nothing whole is given up, and nothing damaged
  is dropped without a report.
- `ledgers_dump`, `data_directory`: what lies in ledger files, entry by entry, without a broker.
- `backups`, `backup_place`, `backup_files`: snapshots of a data directory while its broker runs, and directories made
  of them again.
- `checkup`: one broker and its machine, made of `machine`, `directory`, `reach` and `client_versions`; `findings` has
  what they find.
- `bundle`: what a maintainer asks for, in one archive and without secrets: `bundle_process`, `bundle_layout`,
  `bundle_names`, `bundle_cleaning`, `bundle_readme` and `bundle_archive` are its parts.
- `upgrades`: what opening a directory with this release changes.
- `cluster_state`, `cluster_doctor`: a cluster as ZooKeeper knows it, and what is wrong with it.

It reads the engines' files by itself, since it must work where an engine refuses to open them.

May import: `admin`, `logs`, `ledger`, `metadata`, and below.
"""
