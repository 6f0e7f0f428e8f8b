"""A stand-in for three command-line agents: it takes their arguments, and prints events in their forms.

Its name says which one it is. It answers with the number of the task in its session, and with the task.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import uuid
from pathlib import Path
from typing import Any


def claude() -> tuple[str | None, Path]:
    """Read the arguments of `claude -p`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-p", action="store_true", required=True)
    parser.add_argument("--output-format", choices=["stream-json"], required=True)
    parser.add_argument("--verbose", action="store_true", required=True)
    parser.add_argument("--permission-mode", choices=["acceptEdits"])
    parser.add_argument("--allowedTools")
    parser.add_argument("--resume")
    return parser.parse_args().resume, Path(os.environ["CLAUDE_CONFIG_DIR"])


def codex() -> tuple[str | None, Path]:
    """Read the arguments of `codex exec`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["exec"])
    parser.add_argument("--json", action="store_true", required=True)
    parser.add_argument("--skip-git-repo-check", action="store_true")
    parser.add_argument("--sandbox", choices=["danger-full-access"])
    parser.add_argument("words", nargs="+")
    *resume, dash = parser.parse_args().words
    assert dash == "-"
    assert resume[:1] in ([], ["resume"])
    return resume[1] if resume else None, Path(os.environ["CODEX_HOME"])


def gemini() -> tuple[str | None, Path]:
    """Read the arguments of `gemini` without a terminal."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output-format", choices=["stream-json"], required=True)
    parser.add_argument("--approval-mode", choices=["yolo"])
    parser.add_argument("--resume")
    return parser.parse_args().resume, Path(os.environ["HOME"], ".gemini")


def say(**event: Any) -> None:
    """Print one event."""
    print(json.dumps(event), flush=True)


def main() -> None:
    """Do one task."""
    program = Path(sys.argv[0]).name
    resume, state = {"claude": claude, "codex": codex, "gemini": gemini}[program]()
    task = sys.stdin.read()
    session = resume or str(uuid.uuid4())
    state.mkdir(parents=True, exist_ok=True)
    file = state / f"{session}.json"
    if resume is not None and not file.exists():
        sys.exit(f"No conversation found with session ID {resume}")
    done = [*(json.loads(file.read_text()) if resume else []), task]
    file.write_text(json.dumps(done))
    answer = f"task {len(done)} of {program}: {task.splitlines()[-1]}"
    key = next(
        name for name in ("ANTHROPIC_API_KEY", "CODEX_API_KEY", "GEMINI_API_KEY") if name in os.environ
    )
    print("a warning that is no event", f"the key is {os.environ[key]}")
    failed = "fail" in task
    if program == "claude":
        say(type="system", subtype="init", session_id=session)
        content = [{"type": "text", "text": answer}]
        say(type="assistant", message={"role": "assistant", "content": content}, session_id=session)
        end = {"is_error": failed, "result": "the model refused" if failed else answer}
        say(type="result", subtype="success", session_id=session, total_cost_usd=0.01, **end)
    elif program == "codex":
        say(type="thread.started", thread_id=session)
        say(type="turn.started")
        say(type="item.completed", item={"id": "item_0", "type": "reasoning", "text": "Hm"})
        if failed:
            say(type="turn.failed", error={"message": "the model refused"})
        else:
            say(type="item.completed", item={"id": "item_1", "type": "agent_message", "text": answer})
            say(type="turn.completed", usage={"input_tokens": 1, "output_tokens": 1})
    else:
        say(type="init", session_id=session, model="gemini")
        say(type="message", role="user", content=task)
        for part in (answer[:5], answer[5:]):
            say(type="message", role="assistant", content=part, delta=True)
        status = (
            {"status": "error", "error": {"message": "the model refused"}}
            if failed
            else {"status": "success"}
        )
        say(type="result", **status)


main()
