"""`python -m ganglion`: the command line, also where the command is not on the path."""

from ganglion.cli.app import main

if __name__ == "__main__":
    main()
