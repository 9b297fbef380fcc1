"""The command line; it needs the extra `cli`."""

import os
import sys
import tempfile

__all__ = ["main"]


def main() -> None:
    """Run the command line; without its extra, print how to install it."""
    # skrub creates a folder at import, by default in the home folder, which may not be writable.
    os.environ.setdefault("SKB_DATA_DIRECTORY", os.path.join(tempfile.gettempdir(), "skrub_data"))
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
    except KeyboardInterrupt:  # while modules are imported; the commands handle later ones
        raise SystemExit(130) from None
    app()
