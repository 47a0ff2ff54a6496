"""One running broker: its parts made, started in order, and ended in reverse; and what it does without a client asking.

- `service`: a whole broker in one process. Read this first to see what starts when.
- `broker`: the core that protocol handlers serve: topics, policies in force, and events when they change.
- `handlers`: the port of protocol handlers, and how they are found. `examples/mqtt` is a handler of another project.
- `duties`, `retention`, `cleaner`, `compaction_monitor`, `left_open`, `load_balancing`: duties for all topics,
  whichever protocols are served.
- `conditions`: what is degraded though the broker serves. `disk_watch`, `vitals`: what finds it out.
- `adoption`: topics made of ledgers that another program wrote.
- `setting_sources`: settings from files, environment and command line. `address_file`: ``broker.json``.
- `process_figures`, `all_figures`: figures of the process, and of all workers of one data directory.
- `workers/`: several processes on one data directory behind one address.

May import: all rooms of the core: `logs`, `coordination`, `cluster`, `figures`, `serving`, `auth`, `topics`, and below.
"""
