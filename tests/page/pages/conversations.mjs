// The list of conversations: filter, keyboard, address, and 10,000 rows of which only the visible ones exist.

export default async (t) => {
  const { page } = t;
  await t.api.say("remember that the boat is at pier seven");
  await t.api.say("what is due?");
  await t.open("#/conversations");
  await t.sees(/pier seven/);
  await page.keyboard.press("/");
  await page.keyboard.type("pier");
  await page.waitForFunction(() => location.hash.includes("filter=pier"));
  await page.keyboard.press("Enter");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: /pier seven/ }).waitFor();
  await page.goBack();
  await t.sees(/of \d+ conversations/);
  await page.getByRole("combobox", { name: "Filter conversations" }).fill("nothing like this");
  await page.getByRole("button", { name: "Clear filter" }).click();
  await t.sees(/pier seven/);

  const rows = Array.from({ length: 10_000 }, (_, n) => ({ id: `conv_${String(n).padStart(32, "0")}`, title: `Row ${n}`, last_seq: n, created_at: "2026-01-01T00:00:00Z", updated_at: "2026-01-01T00:00:00Z" }));
  await page.route("**/api/v1/conversations?**", (route) => route.fulfill({ json: { conversations: rows } }));
  await page.reload();
  await t.sees("10,000 conversations");
  const count = () => page.locator(".vtable .tr").count();
  if ((await count()) > 80) throw new Error(`${await count()} rows exist at the same time`);
  await page.locator(".vtable .scroll").focus();
  await page.keyboard.press("End");
  await t.sees("Row 9999");
  await page.getByRole("combobox", { name: "Filter conversations" }).fill("events:>9990 row");
  await t.sees("9 of 10,000 conversations");
  if ((await count()) !== 9) throw new Error(`${await count()} rows instead of 9`);

  // A conversation is deleted after a confirmation, and restored.
  await page.unroute("**/api/v1/conversations?**");
  await page.reload();
  await page.getByRole("combobox", { name: "Filter conversations" }).fill("pier");
  await page.getByText("pier seven").first().click();
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await page.getByRole("button", { name: "Delete conversation" }).click();
  await t.sees("The conversation is deleted");
  await page.getByRole("button", { name: "Restore" }).click();
  await page.getByRole("heading", { name: /pier seven/ }).waitFor();
};
