"""Sapwood: a supervised runtime for agents. Actors on trio under OTP supervision trees."""

from sapwood._public import publish as _publish
from sapwood._runtime import Runtime as Runtime
from sapwood._runtime import open_runtime as open_runtime
from sapwood._runtime import start_in_thread as start_in_thread
from sapwood.actors import Actor as Actor
from sapwood.actors import Crashed as Crashed
from sapwood.actors import ExitReason as ExitReason
from sapwood.actors import Killed as Killed
from sapwood.actors import Normal as Normal
from sapwood.actors import Ref as Ref
from sapwood.actors import Request as Request
from sapwood.actors import Shutdown as Shutdown
from sapwood.actors import handle as handle
from sapwood.actors import message as message
from sapwood.agents import Agent as Agent
from sapwood.agents import Limits as Limits
from sapwood.agents import Session as Session
from sapwood.errors import SapwoodError as SapwoodError
from sapwood.models import AnthropicModel as AnthropicModel
from sapwood.models import OfflineModel as OfflineModel
from sapwood.models import OpenAIModel as OpenAIModel
from sapwood.models import ScriptedModel as ScriptedModel
from sapwood.registry import Lookup as Lookup
from sapwood.registry import NotRunning as NotRunning
from sapwood.registry import Running as Running
from sapwood.registry import Unavailable as Unavailable
from sapwood.supervision import child as child
from sapwood.supervision import supervisor as supervisor
from sapwood.tools import ToolContext as ToolContext
from sapwood.tools import tool as tool

_publish(globals())
