"""Sends messages to a running Annie through the official `openai` package, unchanged.

    pip install openai
    python tests/clients/openai_check.py http://127.0.0.1:8780 [KEY]

Prints one line for each check that passed; a wrong answer is an exception and exit code 1.
"""

import sys
import uuid

import openai


def main() -> None:
    base = sys.argv[1].rstrip("/")
    key = sys.argv[2] if len(sys.argv) > 2 else "not-needed"
    client = openai.OpenAI(base_url=f"{base}/v1", api_key=key, max_retries=0, timeout=60)

    models = [model.id for model in client.models.list()]
    assert "annie" in models, models
    about = client.models.retrieve("annie").model_dump().get("description")
    assert client.models.retrieve("annie/direct").id == "annie/direct"
    print(f"models: {models}, behind them: {about}")

    def say(text: str, chat: str | None = None, **more):
        headers = {"x-annie-conversation": chat} if chat else None
        messages = [{"role": "user", "content": text}]
        return client.chat.completions.create(model="annie", messages=messages, extra_headers=headers, **more)

    plain = say("Create a task to review PR 42 due tomorrow")
    assert plain.choices[0].finish_reason == "stop" and plain.choices[0].message.content, plain
    print(f"chat: {plain.choices[0].message.content!r}, usage {plain.usage.total_tokens}")

    chat = f"check-{uuid.uuid4()}"
    text, reasoning, usage, ends = "", "", None, []
    stream = say("What is due?", chat, stream=True, stream_options={"include_usage": True})
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            assert not choice.delta.tool_calls, "a client would try to run it"
            text += choice.delta.content or ""
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            ends += [choice.finish_reason] if choice.finish_reason else []
    assert text and ends == ["stop"] and usage is not None, (text, ends, usage)
    print(f"stream: {text!r}, on the way: {reasoning!r}, usage {usage.total_tokens}")

    first = say("Remember that Bob prefers email", chat)
    again = client.chat.completions.with_raw_response.create(
        model="annie",
        messages=[{"role": "user", "content": "What does Bob prefer?"}],
        extra_headers={"x-annie-conversation": chat},
    )
    print(f"conversation: {first.choices[0].message.content!r} then {again.parse().choices[0].message.content!r}")
    print(f"conversation id: {again.headers['x-annie-conversation']}, request id: {again.headers['x-request-id']}")

    for what, kind, call in [
        ("unknown model", openai.NotFoundError, lambda: client.chat.completions.create(
            model="gpt-4o", messages=[{"role": "user", "content": "x"}])),
        ("hot", openai.BadRequestError, lambda: say("x", temperature="hot")),
        ("logprobs", openai.BadRequestError, lambda: say("x", logprobs=True)),
        ("two answers", openai.BadRequestError, lambda: say("x", n=2)),
        ("empty message", openai.BadRequestError, lambda: say("")),
    ]:
        try:
            call()
        except kind as error:
            print(f"error, {what}: {type(error).__name__} {error.code}: {error.body['message']}")
        else:
            raise AssertionError(f"{what} was not refused")

    if len(sys.argv) > 2:
        try:
            openai.OpenAI(base_url=f"{base}/v1", api_key="annie_wrong", max_retries=0).models.list()
        except openai.AuthenticationError as error:
            print(f"error, wrong key: AuthenticationError {error.code}")
        else:
            raise AssertionError("a wrong key was accepted")


main()
