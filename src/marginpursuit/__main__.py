"""The command line as ``python -m marginpursuit``."""

from marginpursuit.cli import main

if __name__ == "__main__":
    main()
