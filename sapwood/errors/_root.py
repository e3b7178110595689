"""The root of all exceptions."""


class SapwoodError(Exception):
    """Root of every exception that Sapwood raises."""
