"""Agents: configuration, the server of a conversation, and the sessions that hosts hold."""

from sapwood._public import publish as _publish
from sapwood.agents._agent import Agent as Agent
from sapwood.agents._agent import Limits as Limits
from sapwood.agents._publisher import Publisher as Publisher
from sapwood.agents._publisher import Subscription as Subscription
from sapwood.agents._requests import Receipt as Receipt
from sapwood.agents._requests import SessionStatus as SessionStatus
from sapwood.agents._server import AgentServer as AgentServer
from sapwood.agents._services import Services as Services
from sapwood.agents._session import PendingApproval as PendingApproval
from sapwood.agents._session import RunStream as RunStream
from sapwood.agents._session import Session as Session
from sapwood.agents._sessions import Sessions as Sessions
from sapwood.agents._sessions import StopOutcome as StopOutcome
from sapwood.agents._sessions import Stopped as Stopped

_publish(globals())
