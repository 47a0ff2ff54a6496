"""Operators' questions over HTTP: ``POST /admin/magnetar/v1/QUESTION`` with what it takes as a JSON object.

The answer is the same object as over the socket: ``{"answer": ...}``, or with an error's status ``{"error": ...}``. Who
asks is known as by all of the admin REST, and what it may is in `magnetar.admin.rights`.
"""

from __future__ import annotations

from magnetar.admin import rights
from magnetar.admin.errors import AdminError, Declined, Forbidden, Invalid, NotThere
from magnetar.admin.live import LiveBroker
from magnetar.admin.plain import to_line
from magnetar.admin.questions import QUESTIONS, as_error, parse
from magnetar.base.errors import InvalidTopic
from magnetar.pulsar.rest.request import AdminRequest, Reply, RequiredLevel, RestRoute

ROOT = "/admin/magnetar/v1"
_STATUS: dict[type[AdminError], int] = {Invalid: 400, Forbidden: 403, NotThere: 404, Declined: 409}


async def questions(ask: AdminRequest) -> dict[str, dict[str, str]]:
    """List the questions that are answered here, with what each takes."""
    return {
        name: {field: str(getattr(kind, "__name__", kind)) for field, kind in QUESTIONS[name].takes.items()}
        for name in rights.RULES
    }


async def question(ask: AdminRequest) -> Reply:
    """Answer an operator's question about a partition, a group or grants, or carry out an order."""
    broker = ask.services.broker
    try:
        name = ask.path["question"]
        if name not in QUESTIONS:
            raise NotThere(f"there is no question {name!r}", f"Known are {', '.join(rights.RULES)}.")
        if name not in rights.RULES:
            raise Declined(f"{name} is answered on the broker's machine alone", "Ask there, with --data.")
        ask.changes = QUESTIONS[name].changes
        asked, given = parse(name, ask.object())
        try:
            rights.check(broker.security.authorization.access_of(ask.principal), name, given, broker)
        except InvalidTopic as error:
            raise Invalid(str(error)) from None
        value = await getattr(LiveBroker(broker), asked.method)(**given)
    except AdminError as error:
        return Reply(to_line(as_error(error)), status=status_of(error))
    return Reply(to_line({"answer": value}))


def status_of(error: AdminError) -> int:
    """Return the HTTP status of an error."""
    return next((_STATUS[each] for each in type(error).__mro__ if each in _STATUS), 500)


ROUTES = (
    RestRoute("GET", f"/{ROOT}", questions, RequiredLevel.anybody),
    RestRoute("POST", f"/{ROOT}/{{question}}", question, RequiredLevel.anybody),
)
