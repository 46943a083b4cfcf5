"""Errors as a user sees them: one line on stderr, and an exit status."""

from __future__ import annotations

from typing import Any

import click


class OneLineErrors(click.Group):
    """A group whose commands end with one line and status 1 on an error that Headwater raised on purpose.

    Click itself answers wrong usage with status 2. Anything else is a defect and keeps its traceback.
    """

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort, click.ClickException, BrokenPipeError):
            raise  # click ends quietly when whoever read our output is gone
        except Exception as error:
            # Imported late: the schemas behind it take longer to load than all of the command line.
            from headwater.core.errors import HeadwaterError

            if isinstance(error, HeadwaterError):
                raise click.ClickException(str(error)) from error
            if isinstance(error, OSError) and error.strerror:
                raise click.ClickException(_describe(error)) from error
            raise


def _describe(error: OSError) -> str:
    """Return what the operating system refused, with the file where there is one."""
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
