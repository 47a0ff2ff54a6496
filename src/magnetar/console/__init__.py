"""The console: what a broker knows, as pages for a browser, and as JSON next to each of them.

- `app`: the way in: who asks, which page, and the headers that keep a page from doing more than it shows.
- `page`: what a page is: a name, the facts that it shows, and the commands that say the same. `session`: logins.
- `rendering`, ``templates``, ``static``: facts as HTML. All that came from a client is escaped, and made printable.
- `overview`, `topics`, ...: the facts of each page, gathered from the broker in slices of the event loop.
- `actions`: forms that change something, where they are switched on. `mcp`: the same facts for assistants.

Loaded by the first request for ``/console``. May import: `admin` and below.
"""
