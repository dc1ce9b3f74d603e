// A call is read with its exact arguments, changed, approved, and denied with a reason.

export default async (t) => {
  const texts = ["The fence is white", "The car is red"];
  for (const text of texts) await t.api.post("/messages", { text: `Create a note called ${text.split(" ")[1]} with "${text}"`, conversation_key: text });
  await t.until("two calls wait", async () => (await t.api.get("/approvals")).approvals.length === 2);
  await t.open("#/approvals");
  await t.page.locator(".tr").nth(1).waitFor();
  await t.page.locator(".tr").first().click();
  const edit = t.page.getByLabel("The exact arguments");
  const [first, second] = (await t.api.get("/approvals")).approvals;
  const shown = JSON.parse(await edit.inputValue());
  if (JSON.stringify(shown) !== JSON.stringify(first.arguments)) throw new Error(JSON.stringify(shown));
  if (!/sel=/.test(t.page.url())) throw new Error("the selection is not in the address");
  await t.axe("an approval");
  await t.shot("approvals-selected");
  await edit.fill((await edit.inputValue()).replace(/white|red/, "green"));
  await t.page.getByRole("button", { name: "Approve call" }).click();
  await t.sees("Approved notes.create with your arguments");
  await t.until("the approved task ends", async () => Boolean((await t.api.get(`/tasks/${first.task_id}`)).ended_at));
  const events = async (id) => JSON.stringify((await t.api.get(`/conversations/${id}/events?limit=500`)).events);
  if (!(await events(first.conversation_id)).includes("is green")) throw new Error("the call did not run with the changed arguments");

  await t.page.locator(".tr").first().click();
  await t.page.getByRole("button", { name: "Deny call" }).click();
  const dialog = t.page.locator("dialog[open]");
  await dialog.getByRole("button", { name: "Deny call" }).click();
  await dialog.getByText("Reason is missing.").waitFor();
  await dialog.getByLabel("Reason").fill("it is not red");
  await dialog.getByRole("button", { name: "Deny call" }).click();
  await t.sees("Denied notes.create");
  await t.sees("Nothing waits for you");
  if (!(await events(second.conversation_id)).includes("it is not red")) throw new Error("the reason is not in the log");
};
