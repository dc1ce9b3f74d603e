"""Uses Annie as an MCP server through the official SDK: over HTTP and over stdio, by the newest revision and the one before.

    pip install mcp
    python tests/clients/mcp/sdk_client.py http://127.0.0.1:8780 PATH_OF_ANNIE DATA_FOLDER

Prints one line for each check that passed; a wrong answer is an exception and exit code 1.
"""

import asyncio
import os
import sys
import uuid

from mcp import Client, MCPError, StdioServerParameters


async def check(how, server, mode):
    async with Client(server, mode=mode, read_timeout_seconds=60) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"annie", "tasks__create", "tasks__search", "memory__save"} <= set(listed), sorted(listed)
        create = listed["tasks__create"]
        assert create.input_schema["properties"]["title"]["type"] == "string", create
        assert listed["tasks__search"].annotations.read_only_hint and not create.annotations.read_only_hint
        assert "web__fetch" not in listed, "a skill that reaches other machines is no tool"
        print(f"{how}, {mode}: {len(listed)} tools of {client.server_info.name if client.server_info else 'annie'}")

        title = f"Review PR {uuid.uuid4()}"
        made = await client.call_tool("tasks__create", {"title": title, "priority": "high"})
        assert not made.is_error and title in made.content[0].text, made
        assert made.structured_content["status"] == "success", made
        found = await client.call_tool("tasks__search", {"query": title})
        assert found.structured_content["evidence"]["count"] == 1, found
        print(f"{how}, {mode}: {made.content[0].text}")

        wrong = await client.call_tool("tasks__create", {"titel": "x"})
        assert wrong.is_error and "titel" in wrong.content[0].text, wrong
        try:
            refused = await client.call_tool("nonsense", {})
        except MCPError as error:
            print(f"{how}, {mode}: error, unknown tool: {error}")
        else:
            raise AssertionError(f"an unknown tool was called: {refused}")

        said = await client.call_tool("annie", {"message": "What is due?", "conversation": how})
        assert not said.is_error and said.content[0].text, said
        assert said.structured_content["task_id"].startswith("task_"), said
        print(f"{how}, {mode}: {said.content[0].text!r}")


async def main():
    url, annie, data = sys.argv[1:4]
    home = os.environ.get("HOME", data)
    stdio = StdioServerParameters(command=annie, args=["--data", data, "mcp", "serve"], env={"HOME": home})
    for mode in ("legacy", "auto"):
        await check("http", f"{url.rstrip('/')}/mcp", mode)
        await check("stdio", stdio, mode)


asyncio.run(main())
