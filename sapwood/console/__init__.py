"""The command line: `sapwood demo`, `chat`, `tree` and `inspect`, and the reporter that lets others see a tree."""

from sapwood._public import publish as _publish
from sapwood.console._main import main as main
from sapwood.console._reporter import TreeReporter as TreeReporter

_publish(globals())
