"""A pydantic-ai agent with a tool and a typed output, against an Annie whose model is `fake_model.py`."""

import sys

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


class Weather(BaseModel):
    city: str
    degrees: int


def main() -> None:
    provider = OpenAIProvider(base_url=f"{sys.argv[1].rstrip('/')}/v1", api_key="unused")
    model = OpenAIChatModel("annie", provider=provider)
    agent = Agent(model, system_prompt="Be brief.")
    seen = []

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """The weather of a city."""
        seen.append(city)
        return f"21 degrees in {city}"

    answer = agent.run_sync("Weather in Prague?").output
    assert seen == ["Prague"] and "21 degrees" in answer, (seen, answer)
    typed = Agent(model, output_type=NativeOutput(Weather)).run_sync("Weather?").output
    assert isinstance(typed, Weather), typed
    print(f"agent: {answer!r}, typed: {typed}")


main()
