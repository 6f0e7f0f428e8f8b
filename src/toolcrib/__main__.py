"""`python -m toolcrib`."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        # The working folder, most often a project: nothing of it is to be imported in this process.
        del sys.path[0]
    from toolcrib.cli import main

    main()
