"""HTTP on the broker's own event loop and listeners, for any ASGI application.

- `server`, `connection`, `http`: an application behind uvicorn's protocol, within the broker's limits of connections,
  memory and time.
- `pages`: what a web page may have its reader's browser send is refused before anything else looks at it.
- `chunks`: a bound on bodies that arrive in tiny chunks.
- `common`: what every HTTP port answers: figures, health, and the roles that may read them.

Import it only where HTTP is served: uvicorn and Starlette take a while to load.

May import: `node` and below.
"""
