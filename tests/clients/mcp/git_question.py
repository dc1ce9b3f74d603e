"""Asks Annie a question about a git repository, which she answers through the MCP server `mcp-server-git`.

    pip install mcp-server-git
    python tests/clients/mcp/git_question.py PATH_OF_ANNIE

Starts a repository, a model that calls the tool it is told to, and a server of Annie's own, all in a temporary folder. Prints one
line for each check that passed; a wrong answer is an exception and exit code 1.
"""

import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "agents"))
import fake_model  # noqa: E402

SUBJECT = "Mend the garden gate"


def reply(request):
    """Calls git_log when it is asked about commits, and repeats what the tool returned."""
    last = request["messages"][-1]
    text = fake_model.text_of(last)
    if last["role"] == "tool":
        return f"The repository says: {text}", []
    if "commit" not in text:
        return "Fine.", []
    arguments = {"skill": "mcp.git.git_log", "arguments": {"repo_path": reply.repository, "max_count": 5}}
    function = {"name": "use_skill", "arguments": json.dumps(arguments)}
    return "", [{"index": 0, "id": "call_1", "type": "function", "function": function}]


def call(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def until(what, probe):
    for _ in range(600):
        with contextlib.suppress(OSError, ValueError, KeyError):
            found = probe()
            if found:
                return found
        time.sleep(0.1)
    raise AssertionError(f"never: {what}")


def repository(folder):
    git = ["git", "-C", str(folder), "-c", "user.name=Ann", "-c", "user.email=ann@example.org"]
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / "gate.txt").write_text("mended\n")
    subprocess.run([*git, "add", "gate.txt"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", SUBJECT], check=True)


def main():
    annie = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder, fake_model.running() as model:
        folder = pathlib.Path(folder)
        (folder / "repository").mkdir()
        repository(folder / "repository")
        reply.repository = str(folder / "repository")
        fake_model.reply = reply
        command = [sys.executable, "-m", "mcp_server_git", "--repository", reply.repository]
        (folder / "annie.toml").write_text(
            f'mode = "single_loop"\n[[backend]]\nname = "fake"\nbase_url = "{model}"\nmodel = "fake"\n'
            f'[[mcp]]\nname = "git"\ncommand = {json.dumps(command)}\nenv_pass = ["PATH", "HOME"]\nexternal = false\n'
            'effects = { git_log = "read", git_status = "read" }\n'
        )
        ready = folder / "ready.json"
        arguments = ["--config", str(folder / "annie.toml"), "--data", str(folder / "data")]
        server = subprocess.Popen(
            [annie, *arguments, "serve", "--port", "0", "--ready-file", str(ready)], stderr=subprocess.PIPE, text=True
        )
        try:
            url = until("the server is ready", lambda: json.loads(ready.read_text())["url"])

            def connected():
                row = call(f"{url}/api/v1/mcp")["servers"][0]
                return row if row["state"] == "connected" else None

            row = until("the git server is connected", connected)
            tools = {tool["skill"]: tool["effect"] for tool in row["tools"]}
            assert tools["mcp.git.git_log"] == "read" and tools["mcp.git.git_commit"] == "once", tools
            print(f"connected: {row['server']}, revision {row['protocol']}, {len(tools)} tools")
            asked = {"text": "What was the last commit?", "conversation_key": "k"}
            answer = call(f"{url}/api/v1/messages?wait=60", asked)
            assert answer["status"] == "completed" and SUBJECT in answer["answer"], answer
            print(f"answered: {answer['answer']!r}")
        finally:
            server.terminate()
            log = server.communicate(timeout=30)[1]
            if sys.exc_info()[0]:
                print(log[-3000:], file=sys.stderr)


main()
