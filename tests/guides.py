"""What the guides to environments of others and to protocols show: files, and blocks that a reader copies."""

import re

from tests.command_line import ROOT

OTHERS, PROTOCOLS = (
    (ROOT / "docs" / "guides" / f"{page}.md").read_text() for page in ("environments_of_others", "protocols")
)


def blocks(language, page=OTHERS):
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def block(name):
    """A program of the guide to protocols, which is a file, or the block of YAML that begins with this comment."""
    if name.endswith(".py"):
        assert f'--8<-- "examples/protocols/{name}"' in PROTOCOLS
        return (ROOT / "examples" / "protocols" / name).read_text()
    (found,) = (one for one in blocks("yaml", OTHERS + PROTOCOLS) if re.match(rf"# {re.escape(name)}\b", one))
    return found
