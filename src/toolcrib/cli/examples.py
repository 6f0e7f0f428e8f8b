"""The examples in the help of every command."""

from __future__ import annotations

_SHOWN = 2
_EXAMPLES = """
toolcrib init --examples
toolcrib run repo_scan path=src
toolcrib approvals list
toolcrib approvals list --status all --json
toolcrib approvals approve ID --scope session
toolcrib approvals approve ID --edit limit:=10
toolcrib approvals deny ID
toolcrib approvals deny --all --tool deploy --reason 'Use the test data.'
toolcrib approvals grants
toolcrib approvals grants --json
toolcrib approvals revoke ID
toolcrib approvals revoke ID --root ~/shop
toolcrib approvals show --last
toolcrib approvals show ID --json
toolcrib approvals watch
toolcrib approvals watch --root ~/shop
toolcrib audit verify
toolcrib audit verify --json
toolcrib audit search --event TOOL_REFUSED --since 2h
toolcrib audit search --tool repo_scan --json
toolcrib audit tail -n 5
toolcrib audit tail --follow
toolcrib bridge --ipc /ipc --state /state/bridge.db
toolcrib bridge --agent helper --channel telegram
toolcrib channel telegram
toolcrib channel slack --listen 127.0.0.1:8080
toolcrib operator --namespace agents
toolcrib operator --crds
toolcrib messages list
toolcrib messages list --state dead --json
toolcrib messages show ID
toolcrib messages show ID --json
toolcrib messages retry ID
toolcrib messages retry ID --root ~/shop
toolcrib bundle create weather
toolcrib bundle create weather --name 'Weather reports' --disabled
toolcrib bundle list
toolcrib bundle list --deleted --json
toolcrib bundle show weather
toolcrib bundle show 018faf50 --json
toolcrib bundle enable weather
toolcrib bundle enable 018faf50
toolcrib bundle disable weather
toolcrib bundle disable 018faf50 --json
toolcrib bundle delete weather
toolcrib bundle delete 018faf50
toolcrib calls list --state failed
toolcrib calls list --json
toolcrib calls show --last
toolcrib calls show 019bb1c2 --json
toolcrib calls wait --last --timeout 60
toolcrib calls wait 019bb1c2 --json
toolcrib calls cancel --last
toolcrib calls cancel --tool repo_scan --since 1h
toolcrib calls retry --last
toolcrib calls retry --state failed --yes
toolcrib --completion bash > ~/.toolcrib-completion.bash
toolcrib --completion fish > ~/.config/fish/completions/toolcrib.fish
toolcrib agents list
toolcrib agents list --json
toolcrib agents show forecaster
toolcrib agents show forecaster --json
toolcrib agents choose "Review the change of the parser"
toolcrib agents choose "How is the weather?" --json
toolcrib agents task "Add a test for the parser" --agent claude
toolcrib agents task "And run it" --session SESSION
toolcrib agents add claude
toolcrib agents add codex --json
toolcrib agents import
toolcrib agents import --dry-run --model anthropic:claude-sonnet-5
toolcrib runs run forecaster "How is Oslo?" tenant_id=t-1
toolcrib runs run forecaster "And Rome?" --session 019bb1c2 --stream
toolcrib runs list --state failed
toolcrib runs list --agent forecaster --json
toolcrib runs show --last
toolcrib runs show 019bb1c2 --json
toolcrib runs watch --last
toolcrib runs watch 019bb1c2 --after 120 --json
toolcrib runs wait --last --timeout 60
toolcrib runs wait 019bb1c2 --json
toolcrib runs cancel --last
toolcrib runs cancel --agent writer --state queued
toolcrib runs retry --last
toolcrib runs retry 019bb1c2 --from 2
toolcrib runs prune
toolcrib runs prune --json
toolcrib runs fork --last --prompt "Try another way."
toolcrib runs fork 019bb1c2 --from 1
toolcrib runs sessions list
toolcrib runs sessions list --json
toolcrib runs sessions create
toolcrib runs sessions create --metadata '{"customer": 3}'
toolcrib connect claude-code
toolcrib connect cursor app.py --write
toolcrib bundle export weather
toolcrib bundle export weather --native tools
toolcrib bundle import weather.zip --dry-run
toolcrib bundle import weather.zip --on-conflict replace --enable
toolcrib import convert tool.yml --to flexigpt
toolcrib import convert pack.yaml --to native --output .toolcrib/tools
toolcrib doctor
toolcrib doctor --json
toolcrib doctor --client cursor
toolcrib import openapi petstore.yaml --list
toolcrib import openapi https://api.example.com/openapi.json --only 'get_*'
toolcrib init ~/shop
toolcrib lint
toolcrib lint pack.yaml --format github
toolcrib list --tag code
toolcrib list read file --kind command
toolcrib new count_lines --run 'wc -l ${path}' --read src
toolcrib new weather --kind http --run 'https://api.example.com/${city}'
toolcrib policy show
toolcrib policy show --json
toolcrib policy add ask --writes
toolcrib policy add allow deploy env=staging --caller mcp:claude
toolcrib policy explain repo_scan path=src
toolcrib policy explain web_search query=news --as mcp:claude
toolcrib run web_search @query.json count:=5 --json
toolcrib lint --schema manifest
toolcrib lint --schema manifest > tool.schema.json
toolcrib secrets set API_TOKEN
toolcrib secrets list
toolcrib secrets list --json
toolcrib secrets set API_TOKEN --remove
toolcrib secrets login list_issues
toolcrib secrets login list_issues --root ~/shop
toolcrib secrets check
toolcrib secrets check --json
toolcrib serve app.py
toolcrib serve --http
toolcrib servers add time -- uvx mcp-server-time
toolcrib servers add db --write data -- uvx db-server data/x.db
toolcrib servers list
toolcrib servers list --wait 5 --json
toolcrib servers login linear
toolcrib servers login linear --wait 300
toolcrib servers logout linear
toolcrib servers logout linear --root ~/shop
toolcrib servers remove time
toolcrib servers remove db --yes
toolcrib show repo_scan
toolcrib show project/repo_scan@1.0 --json
toolcrib pod up run.yaml
toolcrib pod up run.yaml --workspace . --json
toolcrib pod-run --state /state
toolcrib pod-run --ipc ./ipc --workspace . --json
toolcrib sidecar --ipc /ipc
toolcrib sidecar --ipc ./ipc --workspace . --target git --network github.com
toolcrib status
toolcrib status --json
toolcrib calls submit repo_scan path=src
toolcrib calls submit --from - --json
toolcrib test
toolcrib test repo_scan web_search --live
toolcrib test --replay tests/cassettes/examples.json
toolcrib token create ci --scope invoke --expires 30d
toolcrib token create reader --scope read --tool 'repo_*'
toolcrib token list
toolcrib token list --json
toolcrib token revoke ci
toolcrib token revoke ci --root ~/shop
toolcrib bundle tool put weather forecast.json
toolcrib bundle tool put weather tool.yml --json
toolcrib bundle tool get weather/forecast
toolcrib bundle tool get weather/forecast@v2 --json
toolcrib bundle tool versions weather/forecast
toolcrib bundle tool versions weather/forecast --json
toolcrib bundle tool revisions weather/forecast@v1
toolcrib bundle tool revisions weather/forecast@v1 --json
toolcrib bundle tool history weather/forecast
toolcrib bundle tool history weather/forecast --json
toolcrib bundle tool enable weather/forecast@v2
toolcrib bundle tool enable forecast
toolcrib bundle tool disable weather/forecast@v2
toolcrib bundle tool disable forecast --json
toolcrib bundle tool delete weather/forecast@v1
toolcrib bundle tool delete weather/forecast@v1 --yes
toolcrib trace repo_scan path=src
toolcrib trace web_search query=news --allow-host api.example.com
toolcrib trust
toolcrib trust --show
toolcrib ui
toolcrib ui --print
toolcrib worker
toolcrib worker --concurrency 16 --app shop.tools:register
toolcrib workflows list
toolcrib workflows list --json
toolcrib workflows run words 'words:=["lathe", "vice"]'
toolcrib workflows run words @inputs.json --detach
toolcrib workflows show words
toolcrib workflows show words --json
"""


def examples_of(path: str) -> list[str]:
    """Return two examples of the command `toolcrib …`; a group shows those of its commands."""
    lines = _EXAMPLES.strip().splitlines()
    return [line for line in lines if f"{path} " in f"{line} "][:_SHOWN]
