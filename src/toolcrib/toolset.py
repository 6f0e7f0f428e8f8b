"""The toolset of a Python program: the registry of tools, and `run`, which serves them."""

from __future__ import annotations

import sys
from typing import NoReturn

from toolcrib.core import toolset as core
from toolcrib.errors import ToolcribError, UsageError


class Toolset(core.Toolset):
    __doc__ = core.Toolset.__doc__

    def run(self) -> NoReturn:
        """Serve the tools to an MCP client on standard input and output, and end the process with it.

        For the end of a program: `if __name__ == "__main__": tools.run()`. The file of the program is then a
        project: its calls are recorded, and may wait for approval. While it serves, `print` writes to
        standard error; what is printed before goes to the client. What keeps it from serving, such as wrong
        settings, ends the process with the message and exit code of `toolcrib serve`. Raises ProgramRead
        instead while the program is only read for its tools, and UsageError where there is no file.
        """
        if core.reading_program.get():
            raise core.ProgramRead
        from toolcrib.serve.process import serve_program

        try:
            serve_program(self)
        except UsageError:
            raise
        except ToolcribError as error:
            from toolcrib.cli.output import print_error

            sys.exit(print_error(error))
