"""What the commands share that have workers go on until SIGTERM or Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headwater.cli.options import Address

if TYPE_CHECKING:
    from headwater.workers.group import Group
    from headwater.workers.worker import Progress

    P = TypeVar("P", bound=Progress)

C = TypeVar("C", bound=Callable[..., Any])


def metrics_option(command: C) -> C:
    """Give a command the option `--metrics`; it gets host and port, or None."""
    return click.option(
        "--metrics",
        type=Address(),
        metavar="HOST:PORT",
        help="Answer GET /metrics, for Prometheus, and GET /health there.",
    )(command)


def work(
    group: Group[P],
    said: str,
    *,
    once: bool,
    metrics: tuple[str, int] | None,
    exposition: Callable[[Mapping[str, P]], bytes],
    tick: Callable[[], None] = lambda: None,
) -> None:
    """Run workers until they have ended or a signal ends them; `said` follows the word ready."""
    import signal

    from headwater.core.errors import HeadwaterError
    from headwater.workers.metrics import serve_metrics

    def end(*_: object) -> None:
        # A worker that waits for an answer does not hear of it: a second signal ends the process where it stands.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        group.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    server = None
    if metrics is not None:
        try:
            server = serve_metrics(metrics, group.progress, lambda: exposition(group.progress))
        except OSError as error:
            raise HeadwaterError(
                f"{metrics[0]}:{metrics[1]} cannot be listened on for --metrics ({error.strerror}): take another"
            ) from error
    group.start(until_end=once)
    try:
        group.wait(ready=lambda: click.echo(f"ready {said}"), tick=tick)
    finally:
        if server is not None:
            server.shutdown()
            server.server_close()
