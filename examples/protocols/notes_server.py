import sys

try:
    from mcp.server.fastmcp import FastMCP
except ImportError:  # mcp 2
    from mcp.server import MCPServer as FastMCP

server, notes = FastMCP("notes"), {}


@server.tool()
def save(title: str, text: str) -> str:
    """Save a note."""
    if not title.istitle():
        raise ValueError("titles begin with a capital letter")
    notes[title] = text
    return "saved"


@server.tool()
def read(title: str) -> str:
    """The text of a note."""
    return notes[title]


if __name__ == "__main__":
    if sys.argv[1:]:  # streamable HTTP at this port, else stdio
        server.settings.port = int(sys.argv[1])
        server.run("streamable-http")
    else:
        server.run()
