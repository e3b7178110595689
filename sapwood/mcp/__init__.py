"""MCP: tools of MCP servers for agents, each server supervised; and agents served as an MCP server."""

from sapwood._public import publish as _publish
from sapwood.mcp._board import McpStatus as McpStatus
from sapwood.mcp._client import McpClient as McpClient
from sapwood.mcp._descriptions import HttpServer as HttpServer
from sapwood.mcp._descriptions import StdioServer as StdioServer
from sapwood.mcp._keeper import mcp_server as mcp_server
from sapwood.mcp._listing import McpTool as McpTool
from sapwood.mcp._results import McpResult as McpResult
from sapwood.mcp._serving import ServedAgents as ServedAgents
from sapwood.mcp._serving import serve_agents as serve_agents
from sapwood.mcp._tools import McpTools as McpTools

_publish(globals())
