"""The files of code that a command line starts; data arguments never count."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from toolcrib.executors.command.code_files import code_files
from toolcrib.sandbox.files.paths import Paths

FILES = (
    "s.sh", "s.py", "s.js", "hook.js", "p.awk", "build.mk", "Makefile", "q.sql", "rc", "data/x.db",
    "data/x.py", "scripts/__init__.py", "scripts/x.py", "pkg/__init__.py", "pkg/__main__.py", "sub/s.sh",
    "bin/tool", "run", "q.jq", "app.dll", "main.go", "util.go", "sub/main.go",
    "site/deep.py",
)  # fmt: skip
IMPORTS = {
    "main.py": "import helper, json as j, os.path\nfrom pack.inner import thing\ndef f():\n    import late\n",
    "helper.py": "from deep import *\nimport helper",
    "pack/__init__.py": "",
    "pack/inner.py": "from .other import y\nfrom .. import above\nimport missing",
    "late.py": "not python at all (",
    "bare": "#!/usr/bin/env python3\nimport deep\n",
    "web.js": "import './style';\nconst a = require('./lib/a')\nexport {b} from \"../above.mjs\"\n"
    "require('left-pad')",
    "lib/a.js": "import('./../json.py'); import x from './deep';",
    "lib/deep/index.ts": "",
    "style.mjs": "// require('./' + name)",
    "go.sh": '#!/bin/sh\nHERE=$(dirname "$0")\n. "$HERE/lib/common.sh" data.txt\ncat unused.txt\n',
    "lib/common.sh": 'source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/../more"; echo ./unused.txt\n',
    "cwd.sh": ". app/more\n. ./unused.txt\n",
    "uses.js": "require('left-pad/x'); require('fs'); require('./part')",
    "part/package.json": '{"name": "p", "main": "dist/a"}',
    "node_modules/left-pad/package.json": "{}",
    "ring/package.json": '{"main": "s"}',
    "ring/s/package.json": '{"main": ".."}',
} | dict.fromkeys(("more", "unused.txt", "part/dist/a.js", "package-lock.json", "deep.py", "json.py"), "")
IMPORTS |= dict.fromkeys(("pack/other.py", "above.py", "unused.py", "pack/unused.py"), "")
"""In the folder `app`."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project").resolve()
    for name in FILES:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("x\n")
    (root / "app/pack").mkdir(parents=True)
    for folder in ("lib/deep", "part/dist", "ring/s", "node_modules/left-pad"):
        (root / "app" / folder).mkdir(parents=True)
    (root / "above.mjs").write_text("")
    (root / "site/sitecustomize.py").write_text("import deep\n")
    for name, text in IMPORTS.items():
        (root / "app" / name).write_text(text)
    (root / "linked.py").symlink_to("app/helper.py")
    (root / "bin/tool").write_text("#!/usr/bin/env -S python3 s.py\n")
    for name in ("bin/tool", "run"):
        (root / name).chmod(0o755)
    (root / "run").write_text("#!/bin/sh\n")
    return root


CASES = {
    "sh app/go.sh": "app/go.sh app/lib/common.sh app/more",
    "sh app/cwd.sh": "app/cwd.sh app/more app/unused.txt",
    "sh -c 'cd app; sh cwd.sh'": "app/cwd.sh app/more app/unused.txt",
    "python3 -u pkg data/x.py": "pkg/__main__.py",
    "node app/uses.js": "app/uses.js app/node_modules app/node_modules/left-pad/package.json"
    " app/package-lock.json"
    " app/part/package.json app/part/dist/a.js",
    "node app/part": "app/part/package.json app/part/dist/a.js",
    "node app/ring": "app/ring/package.json",
    "node -r ./app/lib/deep s": "app/lib/deep/index.ts s.js",
    "sh s.sh data/x.py": "s.sh",
    "sh -o errexit s.sh": "s.sh",
    "bash --rcfile rc -ic 'true'": "rc",
    "python3 -W ignore s.py --db-path data/x.db": "s.py",
    "python3 -X utf8 -W ignore -u s.py data/x.py": "s.py",
    "python3 -m scripts.x data/x.py": "scripts/__init__.py scripts/x.py",
    "python3 -Im pkg": "pkg/__init__.py pkg/__main__.py",
    "python3 -c 'print(1)' s.py": "",
    "python3 -c 'from scripts import x'": "scripts/__init__.py scripts/x.py",
    "node -e 'require(`./hook.js`)' data/x.py": "hook.js",
    "sh -c 'PYTHONPATH=site python3 app/bare'": "app/bare app/deep.py site/deep.py site/sitecustomize.py",
    "sh -c 'export BASH_ENV=rc; bash -c true'": "rc",
    "env PYTHONPATH=sub:app RUBYOPT=-r./hook.js python3 -m helper": "app/helper.py app/deep.py ./hook.js",
    "sh -c 'python3 \\\n  s.py \\\n  data/x.py'": "s.py",
    "python3 - < s.py": "s.py",
    "env sh s.sh": "s.sh",
    "env A=1 -u B -C sub sh s.sh": "s.sh sub/s.sh",
    "env -S 'sh s.sh'": "s.sh",
    "timeout 5 python3 s.py data/x.py": "s.py",
    "timeout -s KILL 5 nice -n 3 python3 s.py": "s.py",
    "sh -c 'sh s.sh'": "s.sh",
    "sh -ec 'cd sub && sh s.sh | sort > out'": "s.sh sub/s.sh",
    "bash -c 'echo \"$(python3 s.py)\"; exec ./run'": "./run s.py",
    "python3 -m cProfile -o data/x.db -s cumtime s.py data/x.py": "s.py",
    "python3 -mcProfile -m scripts.x data/x.py": "scripts/__init__.py scripts/x.py",
    "python3 -u -m pdb -c continue s.py data/x.py": "s.py",
    "python3 -m trace --count -C data s.py data/x.py": "s.py",
    "python3 -m trace --module scripts.x data/x.py": "scripts/__init__.py scripts/x.py",
    "python3 -m runpy scripts.x data/x.py": "scripts/__init__.py scripts/x.py",
    "coverage run --source data -p s.py data/x.py": "s.py",
    "python3 -m coverage run -m scripts.x": "scripts/__init__.py scripts/x.py",
    "jq -f q.jq data/x.py": "q.jq",
    "jq -rf q.jq data/x.py": "q.jq",
    "jq --from-file q.jq --slurpfile x data/x.py": "q.jq",
    "jq .x q.jq": "",
    "dotnet app.dll data/x.py": "app.dll",
    "dotnet exec --roll-forward Major app.dll data/x.py": "app.dll",
    "go run main.go util.go data/x.py": "main.go util.go",
    "go -C sub run -race main.go data/x.py": "main.go sub/main.go",
    "deno run --allow-read -A s.js data/x.py": "s.js",
    "deno s.js data/x.py": "s.js",
    "bun run s.js data/x.py": "s.js",
    "bun --hot s.js data/x.py": "s.js",
    "bun --preload ./hook.js run s.js data/x.py": "./hook.js s.js",
    "awk -f p.awk data/x.py": "p.awk",
    "awk '{print}' s.sh": "",
    "make -f build.mk all": "build.mk",
    "make all": "Makefile",
    "node -r ./hook.js s.js data/x.py": "./hook.js s.js",
    "psql -f q.sql -o data/x.db": "q.sql",
    "xargs -n 1 sh s.sh": "s.sh",
    "sh -c 'xargs rm < rc'": "",
    "sh -c 'xargs < s.sh'": "s.sh",
    "sh -c 'env A=1 timeout 5 sh < s.sh'": "s.sh",
    "ssh host s.py data/x.py": "",
    "find . -name x -exec sh s.sh {} ;": "s.sh",
    "wc -l s.sh": "",
    "linter --config rc src/app.py data/x.py": "",
    "wrapper --level 3 python3 s.py": "s.py",
    "wrapper run": "run",
    "tsx s.js": "s.js",
    "bin/tool data/x.py": "bin/tool s.py",
    "sh -c 'sh bin/tool'": "bin/tool s.py",
    "sh ${script}": "",
    "python3 app/main.py": "app/main.py app/helper.py app/deep.py app/json.py app/late.py app/above.py"
    " app/pack/__init__.py app/pack/inner.py app/pack/other.py",
    "python3 -m app.main": "app/main.py",
    "node app/web.js": "app/web.js app/style.mjs app/lib/a.js app/lib/deep/index.ts app/json.py above.mjs"
    " app/node_modules app/node_modules/left-pad/package.json app/package-lock.json",
    "python3 app/bare": "app/bare app/deep.py",
    "python3 linked.py": "linked.py app/deep.py",
}


def test_the_code_of_each_command_line_is_found_and_no_data(root: Path) -> None:
    found = {}
    for line in CASES:
        argv = [word for part in shlex.split(line) for word in ([part] if part != "" else [])]
        files = code_files(argv, str(root), ".", Paths())
        found[line] = " ".join(sorted(file.path for file in files if not file.path.startswith("/")))
    assert found == {line: " ".join(sorted(names.split())) for line, names in CASES.items()}


def test_variables_that_load_code_count(root: Path) -> None:
    env = {"BASH_ENV": "rc", "NODE_OPTIONS": "--require ./hook.js", "DB": "data/x.db", "N": 1}
    found = code_files(("true",), str(root), ".", Paths(), env)
    assert [file.path for file in found if file.part == "script"] == ["rc", "./hook.js"]


def test_modules_that_are_found_by_a_variable_count(root: Path) -> None:
    (root / "more.zip").touch()
    env = {"PYTHONPATH": "site:more.zip:none.zip"}
    found = code_files(("python3", "app/unused.py"), str(root), ".", Paths(), env)
    names = [file.path for file in found if file.part == "script"]
    assert names == ["more.zip", "site/sitecustomize.py", "site/deep.py", "app/unused.py"]


def test_a_hostile_line_is_read_at_once(root: Path) -> None:
    """Each of these took exponential time: minutes, then years."""
    shell = ("sh", "-c", "cd sub; " * 40 + "sh s.sh")
    for argv in (shell, ("make", *("-C", "sub") * 40), ("find", *("-exec", "find", ".") * 400)):
        assert list(code_files(argv, str(root), ".", Paths()))
    for program, name, text in (
        ("node", "a.js", "import" + " " * 900_000),
        ("sh", "a.sh", ". " + "${" * 400_000),
        ("python3", "a.py", "import " + ".".join("a" * 20_000)),
    ):
        (root / name).write_text(text)
        assert list(code_files((program, name), str(root), ".", Paths()))


def test_the_work_for_a_hostile_line_is_linear(root: Path) -> None:
    calls = []
    sys.setprofile(lambda *event: calls.append(event[1]))
    try:
        assert list(code_files(("find", *("-exec", "find") * 500), str(root), ".", Paths()))
    finally:
        sys.setprofile(None)
    assert len(calls) < 10_000
