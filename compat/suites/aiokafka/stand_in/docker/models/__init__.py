"""The suite names a class of this module in an annotation."""


class containers:
    Container = object
