"""Pure data of a conversation."""

from sapwood.conversation._messages import AssistantMessage as AssistantMessage
from sapwood.conversation._messages import Message as Message
from sapwood.conversation._messages import ToolCall as ToolCall
from sapwood.conversation._messages import ToolResult as ToolResult
from sapwood.conversation._messages import Usage as Usage
from sapwood.conversation._messages import UserMessage as UserMessage
