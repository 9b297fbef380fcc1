"""Calls of the command line in the process of the tests."""

from typer.testing import CliRunner

from marginpursuit.cli.app import app


def call(*arguments, code=0):
    """Call a command and return its result; the exit code is checked."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def squeezed(text):
    """Remove the frame and the line breaks of usage errors."""
    return " ".join(text.replace("│", " ").split())
