"""The official `openai` package against an Annie whose model is `fake_model.py`: tools, parse, responses, embeddings."""

import json
import sys

import openai
from pydantic import BaseModel


class Weather(BaseModel):
    city: str
    degrees: int
    tags: list[str]


TOOL = {"type": "function", "function": {"name": "get_weather", "description": "The weather of a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False},
    "strict": True}}


def chat(client):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Weather in Prague?"}]
    asked = client.chat.completions.create(model="annie", messages=messages, tools=[TOOL], temperature=0, seed=1)
    choice = asked.choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.tool_calls, asked
    assert asked.usage.prompt_tokens_details.cached_tokens == 4, asked.usage
    messages.append(choice.message)
    for call in choice.message.tool_calls:
        assert json.loads(call.function.arguments) == {"city": "Prague"}, call
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "21 degrees"})
    answered = client.chat.completions.create(model="annie", messages=messages, tools=[TOOL])
    assert answered.choices[0].finish_reason == "stop" and "21 degrees" in answered.choices[0].message.content, answered
    print(f"tools: {answered.choices[0].message.content!r}")

    with client.chat.completions.stream(model="annie", messages=messages[:2], tools=[TOOL]) as stream:
        done = stream.get_final_completion()
    assert done.choices[0].message.tool_calls[0].function.name == "get_weather", done
    print("stream: the call is whole")

    parsed = client.chat.completions.parse(
        model="annie", messages=[{"role": "user", "content": "Weather?"}], response_format=Weather)
    weather = parsed.choices[0].message.parsed
    assert isinstance(weather, Weather) and weather.city == "Prague", parsed
    print(f"parse: {weather}")


def responses(client):
    tool = {"type": "function", **TOOL["function"]}
    asked = client.responses.create(model="annie", input="Weather in Prague?", tools=[tool], instructions="Be brief.")
    call = next(item for item in asked.output if item.type == "function_call")
    answered = client.responses.create(model="annie", previous_response_id=asked.id, tools=[tool], input=[
        {"type": "function_call_output", "call_id": call.call_id, "output": "21 degrees"}])
    assert answered.status == "completed" and "21 degrees" in answered.output_text, answered
    with client.responses.stream(model="annie", input="Hello there") as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds
    assert "Hello there" in final.output_text, final
    parsed = client.responses.parse(model="annie", input="Weather?", text_format=Weather)
    assert isinstance(parsed.output_parsed, Weather), parsed
    print(f"responses: {answered.output_text!r}, {final.output_text!r}, {parsed.output_parsed}")


def main() -> None:
    client = openai.OpenAI(base_url=f"{sys.argv[1].rstrip('/')}/v1", api_key="unused", max_retries=0, timeout=60)
    chat(client)
    responses(client)
    vectors = client.embeddings.create(model="annie", input=["a", "b"], encoding_format="float")
    assert [len(d.embedding) for d in vectors.data] == [2, 2], vectors
    print("embeddings: passed through")


main()
