"""The system prompt of an agent in a pod."""

from __future__ import annotations

from pathlib import Path

from toolcrib.pods.prompt import Skill, find_skills, system_prompt


def test_the_prompt_has_a_section_for_each_tool_and_the_skills() -> None:
    prompt = system_prompt(
        "You help.",
        ["execute_command", "read_file", "send_channel_message"],
        [Skill("pods", "Look at pods.", "/skills/pods.md")],
        "telegram",
        "7",
    )
    assert prompt.startswith("You help.\n\n### Commands\n\n")
    assert "This task came from telegram, chat 7" in prompt
    assert prompt.endswith("- pods: Look at pods. (`/skills/pods.md`)")
    assert system_prompt("Only this.", []) == "Only this."


def test_skills_are_markdown_files_and_folders_with_one(tmp_path: Path) -> None:
    (tmp_path / "plain.md").write_text("# Plain things\n\nDo them.")
    (tmp_path / "named.md").write_text("---\nname: other\ndescription: It has a name.\n---\nBody\n")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "SKILL.md").write_text("---\nname: deep\ndescription: A folder.\n---\nBody\n")
    (tmp_path / "deep" / "part.md").write_text("A part of the skill.")
    # A ConfigMap: its files are links into a hidden folder.
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "linked.md").write_text("Linked")
    (tmp_path / "linked.md").symlink_to("..data/linked.md")
    assert list(find_skills(tmp_path)) == [
        Skill("deep", "A folder.", "/skills/deep/SKILL.md"),
        Skill("linked", "Linked", "/skills/linked.md"),
        Skill("other", "It has a name.", "/skills/named.md"),
        Skill("plain", "Plain things", "/skills/plain.md"),
    ]
