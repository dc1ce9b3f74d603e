// The audit shows what happened at a time, what operators did then, and until when the chains hold; the overview shows the spend.

export default async (t) => {
  const { page } = t;
  const drawer = page.locator(".drawer");
  await t.api.say("remember that the chain is sealed");
  await t.api.post("/actors/stop", { path: "/breakers", reason: "who did it" });
  const now = await page.evaluate(() => new Date().toTimeString().slice(0, 5));

  // The audit says until when its chains hold, and what happened at a time.
  await t.open("#/audit");
  await page.getByLabel(/At a time/).fill(now);
  await page.keyboard.press("Tab");
  await page.waitForFunction(() => location.hash.includes("at="));
  await page.locator(".tr").first().waitFor();
  await page.getByRole("button", { name: "Actions", exact: true }).click();
  await drawer.locator("li").filter({ hasText: "who did it" }).first().waitFor();
  await page.getByRole("button", { name: "Close actions" }).click();
  await page.getByRole("button", { name: "Verify chain" }).click();
  await drawer.getByText(/Verified until/).first().waitFor();
  await t.axe("the verified chain");
  await t.shot("audit-verified");
  await page.keyboard.press("Escape");

  // Money and tokens.
  await t.open("#/overview");
  await t.sees("Spend today");
  await t.sees(/of \$20|no cap/);
  await t.sees("Tokens / s");
};
