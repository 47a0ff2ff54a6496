"""The command line: it parses, calls `admin`, `migrate`, `doctor` and `pipeline`, and prints.

- `main`: the entry point; it starts a broker without loading what other commands need.
- `app`: all commands, each in a file of its own. `output`, `formats`: tables for people, JSON for programs.

No rule lives here: whatever a command decides, a function below decides, so that REST and tests have it too.

May import: everything.
"""
