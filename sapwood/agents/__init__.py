"""Agents: configuration, the server of a conversation, and the sessions that hosts hold."""

from sapwood._public import publish as _publish
from sapwood.agents._agent import Agent as Agent
from sapwood.agents._drain import DrainReport as DrainReport
from sapwood.agents._execute import decode_command as decode_command
from sapwood.agents._execute import refusal as refusal
from sapwood.agents._factories import Conversation as Conversation
from sapwood.agents._factories import Factory as Factory
from sapwood.agents._factories import FactoryRouter as FactoryRouter
from sapwood.agents._limits import Limits as Limits
from sapwood.agents._pending_approval import PendingApproval as PendingApproval
from sapwood.agents._publisher import Publisher as Publisher
from sapwood.agents._publisher import Subscription as Subscription
from sapwood.agents._requests import QueueAnswer as QueueAnswer
from sapwood.agents._requests import Receipt as Receipt
from sapwood.agents._requests import SessionStatus as SessionStatus
from sapwood.agents._requests import WhileRunning as WhileRunning
from sapwood.agents._results import StoredResults as StoredResults
from sapwood.agents._results import read_result as read_result
from sapwood.agents._run_stream import RunStream as RunStream
from sapwood.agents._server import AgentServer as AgentServer
from sapwood.agents._services import Services as Services
from sapwood.agents._session import Session as Session
from sapwood.agents._sessions import Sessions as Sessions
from sapwood.agents._sessions import StopOutcome as StopOutcome
from sapwood.agents._sessions import Stopped as Stopped
from sapwood.agents._stored import Copied as Copied
from sapwood.agents._stored import TranscriptLine as TranscriptLine
from sapwood.agents._stored import TranscriptPage as TranscriptPage
from sapwood.agents._tool_answer import ToolAnswer as ToolAnswer

_publish(globals())
