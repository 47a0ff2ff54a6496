"""What of users and tokens can be refused; who keeps these may not be loaded where it is told to a client."""

from __future__ import annotations

from magnetar.base.errors import BrokerError


class TokensDisabled(BrokerError):
    """The broker has no secret to make tokens with."""


class TokenNotFound(BrokerError):
    """There is no token with this HMAC."""


class TokenNotYours(BrokerError):
    """Only its owner, who asked for it, and its renewers may renew and end a token."""


class TokenExpired(BrokerError):
    """The token has ended."""


class TooManyRenewers(BrokerError):
    """All who may renew a token are kept with it, at every broker."""


class UserNotFound(BrokerError):
    """There is no such user with a credential of that mechanism."""


class UnacceptableCredential(BrokerError):
    """A user's name, salt or number of iterations cannot be."""


class AuthenticationRequired(Exception):
    """The client asks for something before it has said who it is, or after its proof has ended."""
