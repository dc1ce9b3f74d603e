// A workflow file appears, its problems are shown, its form checks the arguments, and its run is followed step by step.

import { mkdirSync, writeFileSync, rmSync } from "node:fs";
import { join } from "node:path";

const ERRAND = `---
name: errand
description: Creates a to-do and shows it.
arguments:
  what: {type: text, required: true}
  count: {type: integer, default: 1}
steps:
  - id: add
    skill: tasks.create
    args: {title: "{args.what} no {args.count}"}
  - id: look
    skill: tasks.get
    args: {id: "{steps.add.evidence.number}"}
  - id: say
    answer: "Created {args.what}: {steps.look.result}"
---
`;
const BROKEN = `---
name: broken
description: Uses a skill that does not exist.
steps:
  - id: one
    skill: no.such
---
`;

export default async (t) => {
  const folder = join(t.annie.home, "data", "workflows");
  mkdirSync(folder, { recursive: true });
  await t.open("#/workflows");
  await t.sees("No workflows");
  writeFileSync(join(folder, "errand.md"), ERRAND);
  writeFileSync(join(folder, "broken.md"), BROKEN);
  await t.page.locator(".tr", { hasText: "broken" }).click();
  await t.page.locator(".list-detail").getByText(/no\.such/).first().waitFor();
  await t.page.locator(".tr", { hasText: "errand" }).click();
  const detail = t.page.locator(".list-detail");
  await detail.getByText("No run yet.").waitFor();
  await detail.getByRole("button", { name: "Run errand" }).click();
  await detail.getByText("what is missing.").waitFor();
  await detail.getByLabel("what", { exact: true }).fill("buy <b>tea</b>");
  await detail.getByRole("button", { name: "Run errand" }).click();
  await detail.getByText("Completed").waitFor();
  if ((await detail.locator("ol.events > li").count()) !== 3) throw new Error("the run does not show its three steps");
  await detail.getByText(/Created task #\d+ buy <b>tea<\/b>/).first().waitFor();
  await t.axe("a workflow");
  await t.shot("workflows-run");
  writeFileSync(join(folder, "errand.md"), ERRAND.replaceAll("what", "thing"));
  await detail.getByLabel("thing", { exact: true }).waitFor();
  await detail.getByRole("link", { name: "Open the conversation" }).click();
  await t.sees(/Created buy/);
  rmSync(join(folder, "broken.md"));
};
