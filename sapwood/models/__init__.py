"""Chat models: the protocol, the providers, a scripted one for tests and a rule-based one that needs no network."""

from sapwood._public import publish as _publish
from sapwood.models._anthropic import AnthropicModel as AnthropicModel
from sapwood.models._model_names import parse_model as parse_model
from sapwood.models._offline import OfflineModel as OfflineModel
from sapwood.models._openai import OpenAIModel as OpenAIModel
from sapwood.models._partial_json import PartialJson as PartialJson
from sapwood.models._partial_json import parse_partial_json as parse_partial_json
from sapwood.models._protocol import ChatModel as ChatModel
from sapwood.models._protocol import ClosableModel as ClosableModel
from sapwood.models._protocol import ModelAnswer as ModelAnswer
from sapwood.models._protocol import ModelEvent as ModelEvent
from sapwood.models._protocol import ModelRequest as ModelRequest
from sapwood.models._protocol import StreamRestarted as StreamRestarted
from sapwood.models._protocol import TextDelta as TextDelta
from sapwood.models._protocol import ToolCallDelta as ToolCallDelta
from sapwood.models._protocol import ToolCallStarted as ToolCallStarted
from sapwood.models._protocol import ToolSpec as ToolSpec
from sapwood.models._retry import NO_RETRY as NO_RETRY
from sapwood.models._retry import RetryPolicy as RetryPolicy
from sapwood.models._retry import retrying as retrying
from sapwood.models._scripted import Delay as Delay
from sapwood.models._scripted import Part as Part
from sapwood.models._scripted import ScriptedModel as ScriptedModel
from sapwood.models._scripted import Stall as Stall
from sapwood.models._scripted import Step as Step
from sapwood.models._scripted import Stop as Stop
from sapwood.models._scripted import call as call
from sapwood.models._tokens import estimate_usage as estimate_usage

_publish(globals())
