"""Tools: typed functions that a model may call, with validated arguments and results that never raise."""

from sapwood._public import publish as _publish
from sapwood.tools._context import ToolContext as ToolContext
from sapwood.tools._pending import POLL_EVERY as POLL_EVERY
from sapwood.tools._pending import Pending as Pending
from sapwood.tools._pending import Poller as Poller
from sapwood.tools._result_store import ResultStore as ResultStore
from sapwood.tools._results import TEXT_LIMIT as TEXT_LIMIT
from sapwood.tools._results import ToolOutcome as ToolOutcome
from sapwood.tools._results import ToolOutput as ToolOutput
from sapwood.tools._stop import StopSignal as StopSignal
from sapwood.tools._tool import CrashResume as CrashResume
from sapwood.tools._tool import Tool as Tool
from sapwood.tools._tool import tool as tool
from sapwood.tools._toolbox import Toolbox as Toolbox

_publish(globals())
