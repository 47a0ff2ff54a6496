"""Refusals about users and tokens, in a module of their own: users and tokens may not be loaded where one is sent."""

from __future__ import annotations

from magnetar.base.errors import BrokerError


class TokensDisabled(BrokerError):
    """The broker has no secret to create tokens with."""


class TokenNotFound(BrokerError):
    """There is no token with this HMAC."""


class TokenNotYours(BrokerError):
    """Only its owner, its requester and its renewers may renew and expire a token."""


class TokenExpired(BrokerError):
    """The token has expired."""


class TooManyRenewers(BrokerError):
    """A token has too many renewers: all of them are stored with it, at every broker."""


class UserNotFound(BrokerError):
    """There is no such user with a credential of that mechanism."""


class UnacceptableCredential(BrokerError):
    """A user's name, salt or number of iterations is invalid."""


class AuthenticationRequired(Exception):
    """The client sends a request before it has authenticated, or after its credentials have expired."""
