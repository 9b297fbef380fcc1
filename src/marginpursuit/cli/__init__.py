"""The command line; it needs the extra `cli`."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; without its extra, print how to install it."""
    try:
        from marginpursuit.cli.app import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("rich", "typer"):
            raise
        print(
            f"The command line needs {error.name}, which is not installed. "
            "Install it with: pip install 'marginpursuit[cli]'",
            file=sys.stderr,
        )
        raise SystemExit(5) from None
    app()
