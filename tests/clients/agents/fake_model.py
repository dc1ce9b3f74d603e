"""A model server for the checks of client libraries: it speaks OpenAI's chat completions as a model behind Annie would, by rules.

    import fake_model; with fake_model.running() as url: ...

If a tool is offered and has no result yet, it is called with arguments made of its schema; with a result, the answer repeats the result. If a JSON Schema is
asked for, the answer fits it. Otherwise the last user message is repeated. Streaming only, as Annie asks for it.
"""

import contextlib
import http.server
import json
import threading


def example(schema, root=None):
    """A value that fits a schema."""
    root = root or schema
    if "$ref" in schema:
        target = root
        for part in schema["$ref"].lstrip("#/").split("/"):
            target = target[part]
        return example(target, root)
    if "enum" in schema:
        return schema["enum"][0]
    if "const" in schema:
        return schema["const"]
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return example(schema[key][0], root)
    kind = schema.get("type", "string")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        return {name: example(inner, root) for name, inner in schema.get("properties", {}).items()}
    if kind == "array":
        return [example(schema.get("items", {}), root)]
    return {"string": "Prague", "integer": 3, "number": 3, "boolean": True, "null": None}[kind]


def text_of(message):
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def reply(request):
    """The text and the calls of the answer."""
    messages, tools = request["messages"], request.get("tools") or []
    schema = (request.get("response_format") or {}).get("json_schema", {}).get("schema")
    results = []
    for message in reversed(messages):
        if message["role"] != "tool":
            break
        results.insert(0, text_of(message))
    called = {call["function"]["name"] for m in messages for call in m.get("tool_calls") or []}
    user_texts = [text_of(m) for m in messages if m["role"] == "user"]
    if schema is not None:
        return json.dumps(example(schema)), []
    names = {t["function"]["name"] for t in tools}
    if "get_skill" in names:
        # Annie's own tools: this model answers without them.
        tools = []
    fresh = [t["function"] for t in tools if t["function"]["name"] not in called]
    # A tool that takes the final answer comes last.
    fresh.sort(key=lambda f: "final" in f["name"] or "Answer" in f["name"])
    if fresh and request.get("tool_choice") != "none" and (not results or request.get("tool_choice") == "required"):
        function = fresh[0]
        call = {"index": 0, "id": f"call_{len(messages)}", "type": "function", "function": {
            "name": function["name"], "arguments": json.dumps(example(function.get("parameters") or {}))}}
        return "", [call]
    if results:
        return "The tool says: " + "; ".join(results), []
    return f"You said: {user_texts[-1] if user_texts else ''}", []


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, body, kind="application/json"):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(json.dumps({"object": "list", "data": [{"id": "fake", "object": "model"}]}).encode())

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path.endswith("/embeddings"):
            inputs = request["input"] if isinstance(request["input"], list) else [request["input"]]
            data = [{"object": "embedding", "index": n, "embedding": [0.5, float(n)]} for n in range(len(inputs))]
            usage = {"prompt_tokens": 1, "total_tokens": 1}
            return self.answer(json.dumps(
                {"object": "list", "data": data, "model": request["model"], "usage": usage}).encode())
        text, calls = reply(request)
        frame = {"id": "fake-1", "object": "chat.completion.chunk", "created": 1, "model": "fake"}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15,
                 "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 1}}
        chunks = [{"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}]
        for at in range(0, len(text), 8):
            chunks.append({"choices": [{"index": 0, "delta": {"content": text[at:at + 8]}, "finish_reason": None}]})
        if calls:
            chunks.append({"choices": [{"index": 0, "delta": {"tool_calls": calls}, "finish_reason": None}]})
        finish = "tool_calls" if calls else "stop"
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        chunks.append({"choices": [], "usage": usage})
        lines = [f"data: {json.dumps({**frame, **chunk})}\n\n" for chunk in chunks] + ["data: [DONE]\n\n"]
        self.answer("".join(lines).encode(), "text/event-stream")


@contextlib.contextmanager
def running():
    """The server's base URL, while it runs."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()


if __name__ == "__main__":
    with running() as url:
        print(url, flush=True)
        threading.Event().wait()
