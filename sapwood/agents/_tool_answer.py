"""The call that a run was to bring about."""

from __future__ import annotations

from typing import Any

import attrs

from sapwood.conversation import ToolCall, ToolResult
from sapwood.tools import Tool


@attrs.frozen
class ToolAnswer:
    """The call of a tool that a run was to bring about.

    Attributes:
        tool: The tool.
        call: The call, with the arguments as the model wrote them.
        result: What came of it.
    """

    tool: Tool[..., Any]
    call: ToolCall
    result: ToolResult

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments as the tool's function takes them: of the types of its annotations."""
        return self.tool.read(self.call.arguments)[0]

    @property
    def value(self) -> Any:
        """What the function returned, of the type of its return annotation, read from the stored result.

        Raises:
            InvalidTool: if that annotation is none that JSON can fill.
            CodecError: if the text is not what it says, as that of a result that was cut.
        """
        return self.tool.read_result(self.result.content)
