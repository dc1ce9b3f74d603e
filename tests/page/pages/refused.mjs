// Calls and dispatches that were refused end: no chip of an ended turn says that something still runs.

export default async (t) => {
  const { page } = t;
  const { conversation_id: original } = await t.api.say("Create a task to wax the boat, remember that Eve prefers tea, and then tell me what is due");
  const { lines } = await t.api.get(`/conversations/${original}/export?limit=500`);
  // The log of a turn whose first reply also had a call above the limit, a command behind a wrong one, and a dispatch that
  // needs an agent which does not exist.
  const reply = lines.find((line) => line.kind === "model_replied" || line.body?.kind === "model_replied");
  const body = reply.body ?? reply;
  const skill = (id, intent) => ({ id, name: "tasks.search", raw: `tasks.search --text ${id}`, action: { action: "skill", intent: `int_0198c0ffee007000800000000000000${intent}`, skill: "tasks.search", arguments: { text: id }, effect: "read", external: false, timeout_ms: 30000 } });
  body.calls = [...(body.calls ?? []), skill("above", 1), skill("behind", 2), { id: "late", name: "dispatch_agent", raw: "{}", action: { action: "dispatch", agent: "late", mission: "Wait for nobody", skills: ["tasks.search"], context: "", depends_on: ["missing"], max_tool_calls: 1 } }];
  body.judged = { ...(body.judged ?? {}), verdicts: [...(body.judged?.verdicts ?? []), { call_id: "above", do: "refuse", why: "call_limit", text: `[not run] All calls are used. ${t.HOSTILE}` }] };
  const { conversation_id: id } = await t.api.post("/conversations/import", { lines: lines.map((line) => JSON.stringify(line)).join("\n") });

  await t.open(`#/conversations/${id}`);
  await page.locator(".answer").first().waitFor();
  const chips = page.locator(".workchips").first();
  await chips.getByRole("button", { name: "Skill tasks.search, Refused: open" }).click();
  await page.locator(".drawer").getByText("Why it did not run").waitFor();
  await page.locator(".drawer").getByText(/All calls are used/).waitFor();
  await t.axe("a refused call");
  await t.shot("refused-call");
  await page.keyboard.press("Escape");
  await chips.getByRole("button", { name: "Skill tasks.search, Not run: open" }).waitFor();
  await chips.getByRole("button", { name: "Agent late, Refused: open" }).click();
  await page.locator(".drawer").getByText(/It needs the result of missing/).waitFor();
  await page.keyboard.press("Escape");
  const said = await page.locator("main").innerText();
  if (/\brunning\b|\bplanned\b/i.test(said)) throw new Error(`something still runs in an ended turn: ${said.match(/.*(running|planned).*/i)[0]}`);
  await t.open(`#/conversations/${id}?view=waterfall`);
  await t.sees(/Slowest:/);
  // The bar of a call that never ran has no length.
  const wide = await page.locator(".wfrow.skill", { hasText: "tasks.search" }).evaluateAll((rows) => rows.map((row) => parseFloat(row.querySelector(".wfbar").style.width)));
  if (!wide.length || wide.some((width) => width > 1)) throw new Error(`bars of calls that did not run: ${wide}`);
};
