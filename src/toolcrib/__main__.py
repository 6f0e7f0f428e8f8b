"""`python -m toolcrib`."""

from toolcrib.cli import main

if __name__ == "__main__":
    main()
