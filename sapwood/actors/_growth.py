"""Waits that grow: the one formula behind every backoff."""

from __future__ import annotations


def growing_wait(first: float, factor: float, step: int, most: float) -> float:
    """Return `first * factor ** (step - 1)` seconds, at most `most`, also where no float can hold the power.

    Args:
        first: Seconds of the first wait.
        factor: Growth from one wait to the next, at least 1.
        step: Number of the wait, from 1.
        most: Longest wait, in seconds.
    """
    try:
        return min(most, first * float(factor) ** (step - 1))
    except OverflowError:
        return most if first else 0.0
