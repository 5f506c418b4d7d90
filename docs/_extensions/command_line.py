"""The directive ``cfe-commands``: a section for each command of ``cfe-faiss``, with its printed ``--help``."""

import argparse
import os
from unittest import mock

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from cfe_faiss.cli.parser import PARSER


def _commands(top: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (choices,) = (
        action.choices for action in top._actions if isinstance(action, argparse._SubParsersAction)
    )
    return dict(choices)


def _help(command: argparse.ArgumentParser) -> str:
    # As wide as a page of the site, in any terminal of the build; Python 3.14 would colour it.
    with mock.patch.dict(os.environ, {"COLUMNS": "84", "NO_COLOR": "1"}):
        return command.format_help()


class CommandsDirective(SphinxDirective):
    """Sections with the help of every command, which opens at a click."""

    def run(self) -> list[nodes.Node]:
        """Return them."""
        found: list[nodes.Node] = []
        for name, command in _commands(PARSER).items():
            section = nodes.section(ids=[f"cfe-faiss-{name}"], names=[f"cfe-faiss {name}"])
            text = _help(command)
            section += [
                nodes.title(text=f"cfe-faiss {name}"),
                nodes.paragraph(text=command.description),
                nodes.raw(text="<details><summary>Usage and options</summary>", format="html"),
                nodes.literal_block(text, text, language="text"),
                nodes.raw(text="</details>", format="html"),
            ]
            found.append(section)
        return found


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("cfe-commands", CommandsDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
