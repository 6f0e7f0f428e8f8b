"""What a Python tool answers with: its code can reach the channel, so the server believes nothing of it."""

from __future__ import annotations

import json

from tests.escape.arena import Arena, words
from tests.escape.contestants import end
from tests.escape.probe import Found, Outcome, probe
from tests.escape.probes.grants import judged, script

# The answer of a Python tool comes by descriptor 3, which the tool's own code can reach.

FORGERIES = {
    "garbage": "os.write(3, b'\\x00\\xff{{{')",
    "twice": "os.write(3, b'{\"value\": 1}'); os.write(3, b'{\"value\": 2}')",
    "closed": "os.close(3)",
    "exit": "os._exit(0)",
    "killed": "os.kill(os.getpid(), 9)",
    "deep": "os.write(3, b'[' * 200000); os._exit(0)",
    "huge number": "os.write(3, b'{\"value\": ' + b'9' * 100000 + b'}'); os._exit(0)",
    "list": "os.write(3, b'[1]'); os._exit(0)",
    "odd signal": 'os.write(3, b\'{"error":"E","message":"m","signal":[],"delay":0}\'); os._exit(0)',
    "unknown signal": (
        'os.write(3, b\'{"error":"E","message":"m","signal":"SystemExit","delay":0}\'); os._exit(0)'
    ),
    "long": "os.write(3, b'{\"value\":\"' + b'x' * 3000000 + b'\"}'); os._exit(0)",
}


@probe("grants", "answer in ways that only a broken or hostile interpreter does", ours_only=True)
def forged_answers(arena: Arena) -> Found:
    body = "import os\ndef run(how):\n"
    for how, code in FORGERIES.items():
        body += f"    if how == {how!r}:\n        {code}\n"
    (arena.project / "liar.py").write_text(body + "    return 'tried'\n")
    arena.tool(
        "liar",
        inputs={
            "schema": {"type": "object", "properties": {"how": {"type": "string", "description": "How"}}}
        },
        exec={"python": {"module": "liar", "function": "run", "args": ["${how}"]}},
        permissions={"fs": {"read": ["."]}},
    )
    wrong, said = [], ""
    for how in [*FORGERIES, "honest"]:
        result = arena.call("liar", {"how": how})
        json.dumps(result.as_dict(), default=str)
        said += f"{how}: {result.error.code if result.error else str(result.value)[:20]}; "
        if result.error is not None and result.error.code in ("internal", "usage"):
            wrong.append(how)
    escaped = wrong or "honest: tried" not in said
    return Found(Outcome.ESCAPED if escaped else Outcome.BLOCKED, said[-400:], arena.report)


@probe("grants", "have the log of calls say that nothing was run, after having run", ours_only=True)
def run_denied(arena: Arena) -> Found:
    done, said = arena.project / "src/done", ""
    tricks = (
        "for s in INT QUIT HUP USR1 ALRM; do kill -$s 1; done; sleep 0.2",
        "trap '' TERM; prlimit --pid 1 --data=0 --as=0; for i in $(seq 300); do kill -TERM 1; done",
        "trap '' TERM; prlimit --pid 1 --nofile=1 --nproc=0; (while :; do kill -TERM 1; done) & sleep 0.3",
    )
    result = script(arena, "true")
    for trick in tricks:
        done.unlink(missing_ok=True)
        result = script(arena, f"echo x > src/done; {trick}")
        if done.exists() and "nothing was run" in words(result):
            said += f"{trick[:30]}: {result.error}; "
    log = (arena.project / ".toolcrib/audit/tools.log").read_text()
    return arena.answered(result, said or "TOOL_REFUSED" in log, done.exists(), said or log)


@probe("grants", "have a grandchild answer after the function has failed", ours_only=True)
def answer_of_a_grandchild(arena: Arena) -> Found:
    marker = f"grandchild-{arena.token}"
    (arena.project / "father.py").write_text(
        "import os, sys, time\n"
        "def run():\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        time.sleep(0.3)\n"
        '        os.write(3, b\'{"value": "forged"}\')\n'
        "        os._exit(0)\n"
        "    raise RuntimeError('tried')\n"
    )
    arena.tool(
        "father",
        exec={"python": {"module": "father", "function": "run"}},
        permissions={"fs": {"read": ["."]}},
    )
    result = arena.call("father")
    end(marker)
    return judged(arena, result, "forged" in words(result))


@probe("grants", "shadow a standard module by a file in the working folder", ours_only=True)
def shadowed_module(arena: Arena) -> Found:
    for name in ("json.py", "inspect.py", "sitecustomize.py", "usercustomize.py", "traceback.py"):
        (arena.project / name).write_text(
            f"print('{arena.token}', flush=True)\nimport os\nos.write(3, b'{arena.token}')\n"
        )
    (arena.project / "plain.py").write_text("def run():\n    return 'tried'\n")
    arena.tool(
        "plain",
        exec={"python": {"module": "plain", "function": "run"}},
        permissions={"fs": {"read": ["."]}},
    )
    result = arena.call("plain")
    return judged(arena, result, result.value != "tried" or arena.token in words(result))
