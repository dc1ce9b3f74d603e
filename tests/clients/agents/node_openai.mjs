// The official `openai` package for Node against an Annie whose model is `fake_model.py`: chat, stream, tools, responses.
import assert from "node:assert";
import { createRequire } from "node:module";

// Installed beside the built files, not in the source tree.
const require = createRequire(`${process.argv[3]}/`);
const OpenAI = require("openai").default;
const client = new OpenAI({ baseURL: `${process.argv[2].replace(/\/$/, "")}/v1`, apiKey: "unused", maxRetries: 0 });

const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = [{ type: "function", function: { name: "get_weather", description: "The weather.", parameters } }];
const messages = [{ role: "user", content: "Weather in Prague?" }];
const asked = await client.chat.completions.create({ model: "annie", messages, tools });
assert.equal(asked.choices[0].finish_reason, "tool_calls");
const [call] = asked.choices[0].message.tool_calls;
assert.equal(JSON.parse(call.function.arguments).city, "Prague");
messages.push(asked.choices[0].message, { role: "tool", tool_call_id: call.id, content: "21 degrees" });
let text = "";
for await (const chunk of await client.chat.completions.create({ model: "annie", messages, tools, stream: true })) {
  text += chunk.choices[0]?.delta?.content ?? "";
}
assert.match(text, /21 degrees/);
const response = await client.responses.create({ model: "annie", input: "Hello there" });
assert.match(response.output_text, /Hello there/);
const kinds = [];
for await (const event of await client.responses.create({ model: "annie", input: "Hello", stream: true })) kinds.push(event.type);
assert.equal(kinds.at(-1), "response.completed");
await assert.rejects(client.chat.completions.create({ model: "annie", messages, temperature: 9 }), OpenAI.BadRequestError);
console.log(`tools: ${JSON.stringify(text)}, responses: ${JSON.stringify(response.output_text)}`);
