"""Sapwood: a supervised runtime for agents. Actors on trio under OTP supervision trees."""

from sapwood._runtime import Runtime as Runtime
from sapwood._runtime import open_runtime as open_runtime
