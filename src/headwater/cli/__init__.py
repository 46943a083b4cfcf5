"""The `headwater` command."""

from __future__ import annotations

import click

from headwater import __version__

__all__ = ["main"]


@click.group()
@click.version_option(__version__, prog_name="headwater")
def main() -> None:
    """Stream processing for Python teams."""
