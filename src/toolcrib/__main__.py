"""`python -m toolcrib`."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        # An installed package has `toolcrib.pth`, which starts this again with -P. Without that file the
        # working folder, most often a project, is taken out here: too late for what is imported before.
        del sys.path[0]
    from toolcrib.cli import main

    main()
