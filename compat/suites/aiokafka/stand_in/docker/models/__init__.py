"""The suite names a class of this module in an annotation."""


class containers:  # noqa: N801 - a module of Docker's
    Container = object
