"""`python -m ganglion`: the command line, also where the command is not on the path.

``python -m ganglion train.py`` is ``ganglion run train.py``.
"""

import sys

from ganglion.cli.app import main

if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1].endswith(".py"):
        sys.argv.insert(1, "run")
    main()
