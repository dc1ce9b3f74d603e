"""The OpenAI Agents SDK with its defaults (responses), plain and streamed, against an Annie whose model is `fake_model.py`."""

import asyncio
import sys

import agents
import openai

SEEN = []


@agents.function_tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    SEEN.append(city)
    return f"21 degrees in {city}"


async def main() -> None:
    client = openai.AsyncOpenAI(base_url=f"{sys.argv[1].rstrip('/')}/v1", api_key="unused", max_retries=0, timeout=60)
    agents.set_default_openai_client(client, use_for_tracing=False)
    agents.set_tracing_disabled(True)
    agent = agents.Agent(name="forecaster", instructions="Be brief.", model="annie", tools=[get_weather])
    done = await agents.Runner.run(agent, "Weather in Prague?")
    assert SEEN == ["Prague"] and "21 degrees" in done.final_output, (SEEN, done.final_output)
    streamed = agents.Runner.run_streamed(agent, "Weather in Prague?")
    kinds = [event.type async for event in streamed.stream_events()]
    assert "21 degrees" in streamed.final_output and "run_item_stream_event" in kinds, (streamed.final_output, kinds)
    print(f"agent: {done.final_output!r}, streamed: {streamed.final_output!r}")


asyncio.run(main())
