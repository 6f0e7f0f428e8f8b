"""`toolcrib` alone says where one stands and names the next command, step by step."""

from __future__ import annotations

from pathlib import Path

from tests.commands import run
from tests.e2e.cli.test_cli import ENVIRONMENT, Done


def test_each_step_names_the_next_one(tmp_path: Path) -> None:
    home = {"TOOLCRIB_DATA": str(tmp_path / "data"), "DATABASE_URL": ""}
    folder = tmp_path / "shop"
    folder.mkdir()

    def cli(*words: str) -> Done:
        return Done(run(words, folder, ENVIRONMENT | home, accepted=False))

    def next_step() -> str:
        done = cli()
        assert done.code == 0, done.err
        assert "toolcrib --help" in done.err
        return done.out.splitlines()[-1]

    assert "no project" in cli().out
    assert next_step() == "Next: toolcrib init --examples"
    cli("init")
    assert f"{folder}: 0 tools" in cli().out
    assert next_step() == "Next: toolcrib new NAME"
    cli("new", "look", "--run", "true")
    assert f"{folder}: 1 tool\n" in cli().out
    assert next_step() == "Next: toolcrib run look, or for an agent host: toolcrib connect HOST"
    assert cli("calls", "submit", "look").code == 0
    assert "No worker runs the calls of look" in cli().out
    assert next_step() == "Next: toolcrib worker"
    cli("new", "ask", "--run", "true", "--write", "out")
    manifest = folder / ".toolcrib/tools/look/tool.yml"
    manifest.write_text(manifest.read_text() + "approval: {required: true, reason: It matters}\n")
    assert cli("run", "look", "--wait", "pending").code != 0
    assert "1 call waits for approval" in cli().out
    assert "1 wait for trust: ask" in cli().out
    assert next_step() == "Next: toolcrib trust"
    cli("trust", "--yes")
    assert next_step() == "Next: toolcrib approvals list"
    manifest.write_text("kind: command\n")
    assert "1 file with errors" in cli().out
    assert next_step() == "Next: toolcrib lint"


def test_of_a_python_file_it_runs_nothing(tmp_path: Path) -> None:
    (file := tmp_path / "app.py").write_text("raise SystemExit('it ran')\n")
    done = Done(run(("--root", "app.py"), tmp_path, ENVIRONMENT | {"TOOLCRIB_DATA": str(tmp_path / "data")}))
    assert (done.code, "it ran" in done.out + done.err) == (0, False)
    assert done.out.splitlines()[-1] == f"Next: toolcrib list {file}"
