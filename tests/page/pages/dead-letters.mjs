// Dead letters of one kind are found by the filter, retried, and discarded.

import { Annie, slowModel } from "../world.mjs";

export default async (t) => {
  const model = await slowModel();
  const annie = new Annie(t.annie.program, "dead-letters", `[[backend]]\nname = "broken"\nbase_url = "${model.url}"\nmodel = "slow"\nmode = "single_loop"\n`);
  await annie.start();
  try {
    for (const [n, priority] of ["low", "low", "background", "background"].entries()) {
      await annie.post("/messages?wait=20", { text: `fail, report ${n} ${t.HOSTILE}`, priority, conversation_key: `dead ${n}` });
    }
    await t.until("there are four dead letters", async () => (await annie.get("/dead-letters?state=waiting")).total === 4);
    await t.page.goto(`${annie.url}/#/dead`);
    await t.page.locator(".tr").nth(3).waitFor();
    const filter = t.page.getByRole("combobox", { name: "Filter dead letters" });
    await filter.fill("cla");
    await t.page.getByRole("option", { name: /class:/ }).click();
    await filter.fill("class:low error:model_invalid_request");
    await t.page.waitForFunction(() => document.querySelectorAll(".tr").length === 2);
    if (!/filter=class/.test(t.page.url())) throw new Error("the filter is not in the address");
    await t.page.getByRole("heading", { name: "Dead letters" }).click();
    await t.page.locator(".tr").first().click();
    await t.page.locator(".list-detail").getByText("this model refuses <b>this</b>").first().waitFor();
    await t.axe("a dead letter");
    await t.shot("dead-letters-selected");
    await t.page.getByLabel("Select all dead letters shown").check();
    await t.page.getByRole("button", { name: "Retry 2 dead letters" }).click();
    await t.page.locator("dialog[open]").getByRole("button", { name: "Retry 2 dead letters" }).click();
    await t.sees("2 dead letters are retried as soon as the queue has capacity");
    await t.until("both are retried", async () => (await annie.get("/dead-letters?state=retried")).total === 2);

    await filter.fill("class:background");
    await t.page.waitForFunction(() => document.querySelectorAll(".tr").length >= 2);
    await t.page.getByRole("heading", { name: "Dead letters" }).click();
    await t.page.locator(".tr").first().click();
    await t.page.getByRole("button", { name: "Discard 1 dead letter" }).click();
    await t.page.locator("dialog[open]").getByRole("button", { name: "Discard 1 dead letter" }).click();
    await t.sees("Discarded 1 dead letter");
    await t.until("it is discarded", async () => (await annie.get("/dead-letters?state=discarded")).total === 1);
  } finally {
    await annie.kill();
    model.close();
  }
};
