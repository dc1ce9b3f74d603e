"""A langchain agent with a tool, and structured output, against an Annie whose model is `fake_model.py`."""

import sys

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel


class Weather(BaseModel):
    """The weather."""

    city: str
    degrees: int


SEEN = []


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    SEEN.append(city)
    return f"21 degrees in {city}"


def main() -> None:
    model = ChatOpenAI(
        base_url=f"{sys.argv[1].rstrip('/')}/v1", api_key="unused", model="annie", max_retries=0, timeout=60, temperature=0)
    agent = create_agent(model, tools=[get_weather], system_prompt="Be brief.")
    done = agent.invoke({"messages": [{"role": "user", "content": "Weather in Prague?"}]})
    last = done["messages"][-1].content
    assert SEEN == ["Prague"] and "21 degrees" in last, (SEEN, last)
    print(f"agent: {last!r}")
    for method in ("json_schema", "function_calling"):
        weather = model.with_structured_output(Weather, method=method).invoke("Weather?")
        assert isinstance(weather, Weather), weather
        print(f"structured output by {method}: {weather}")


main()
