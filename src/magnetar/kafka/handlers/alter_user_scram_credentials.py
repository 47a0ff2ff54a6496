"""AlterUserScramCredentials: users and their passwords, which clients salt before they send them (KIP-554)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.auth.errors import UnacceptableCredential, UserNotFound
from magnetar.auth.scram import MECHANISMS, of_salted_password
from magnetar.auth.scram_users import Alteration, ScramUsers, check_iterations, check_name
from magnetar.base.errors import BrokerError
from magnetar.kafka.errors import REFUSALS, AlteredTwice, UnknownMechanism, code_for
from magnetar.serving.pace import paced
from magnetar.wire.kafka.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from magnetar.wire.kafka.messages.alter_user_scram_credentials_response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

Row = ScramCredentialDeletion | ScramCredentialUpsertion
_BY_NUMBER = {each.number: each for each in MECHANISMS.values()}
_AT_ONCE = 500  # credentials in one commit of the metadata store


async def alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    """Keep and forget credentials; what is wrong with one user's leaves the others alone."""
    users = context.kafka.broker.security.scram
    wanted: dict[str, Alteration] = {}
    errors: dict[str, Exception] = {}
    rows: list[Row] = [*request.deletions, *request.upsertions]
    async for row in paced(rows):
        name = row.name
        if name in errors:
            continue
        if wanted.pop(name, None) is not None:
            errors[name] = AlteredTwice("A user credential cannot be altered twice in the same request")
            continue
        try:
            wanted[name] = _alteration(row, users)
        except BrokerError as error:
            errors[name] = error
    alterations = list(wanted.values())
    for at in range(0, len(alterations), _AT_ONCE):
        some = alterations[at : at + _AT_ONCE]
        try:
            await users.alter(some)
        except REFUSALS as error:
            errors |= {each.user: error for each in some}
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=name, error_message=None)
            for name in wanted
            if name not in errors
        ]
        + [
            AlterUserScramCredentialsResult(user=name, error_code=code_for(error), error_message=str(error))
            for name, error in errors.items()
        ]
    )


def _alteration(row: Row, users: ScramUsers) -> Alteration:
    check_name(row.name)
    mechanism = _BY_NUMBER.get(row.mechanism)
    if mechanism is None:
        raise UnknownMechanism("Unknown SCRAM mechanism")
    if isinstance(row, ScramCredentialDeletion):
        if users.credential(mechanism, row.name) is None:
            raise UserNotFound("Attempt to delete a user credential that does not exist")
        return Alteration(row.name, mechanism, None)
    check_iterations(row.iterations)
    if not row.salt:
        raise UnacceptableCredential("Salt must not be empty")
    made = of_salted_password(mechanism, bytes(row.salted_password), bytes(row.salt), row.iterations)
    return Alteration(row.name, mechanism, made)
