// The page in a browser, as someone uses it.
import { readFileSync } from "node:fs";
import type { Server } from "node:http";
import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { decode } from "../../page/src/share.ts";
import { LOG } from "../native.ts";
import { address, cellAt, drawn, launch, lineAt, openPreset, rest, serve, visit, type Watched } from "./harness.ts";

let server: Server;
let browser: Browser;
let watched: Watched;
let page: Page;

beforeAll(async () => {
  server = await serve();
  browser = await launch();
});
afterAll(async () => {
  await browser.close();
  server.close();
});
beforeEach(async () => {
  watched = await visit(browser, address(server), { permissions: ["clipboard-read", "clipboard-write"] });
  page = watched.page;
});
afterEach(() => watched.close());

// The page answers a moment after what was done to it, so whatever is read of it is waited for.
const text = (selector: string) => expect.poll(() => page.locator(selector).innerText(), { message: selector });
const count = (selector: string) => expect.poll(() => page.locator(selector).count(), { message: selector });
const attribute = (selector: string, name: string) => expect.poll(() => page.getAttribute(selector, name), { message: selector });
const pointed = () => text(".pointed");
const step = () => text(".count");
/** Moves the slider and waits until the step is shown. */
async function scrub(to: number, shown: string): Promise<void> {
  await page.locator(".scrub").fill(String(to));
  await step().toBe(shown);
  await drawn(page);
}
/** A key for the page itself, whatever had the focus. */
async function press(key: string): Promise<void> {
  await page.evaluate(() => (document.activeElement as HTMLElement | null)?.blur());
  await page.keyboard.press(key);
}
const clipboard = () => page.evaluate(() => navigator.clipboard.readText());

/** The scenario as the JSON tab shows it. */
async function scenario(): Promise<{ cache: unknown; ops: unknown[] }> {
  await page.click("#side-json");
  return JSON.parse(await page.inputValue("#json"));
}

describe("a scenario built by hand", () => {
  beforeEach(async () => {
    await openPreset(page, "first-wrap");
    await page.click("#side-build");
    await page.click("[aria-label='Remove card 2']");
    await page.fill("#max_size", "3");
    await page.fill("#card-0-lengths", "3, 1");
    await page.click("[data-add=decode]");
    await page.fill("#card-1-steps", "2");
  });

  test("becomes the operations it says", async () => {
    await expect.poll(scenario).toEqual({
      cache: { kind: "rotating", max_size: 3 },
      ops: [
        { op: "merge", rows: [[1000, 1001, 1002], [2000]] },
        { op: "append", tokens: [[1003], [2001]] },
        { op: "append", tokens: [[1004], [2002]] },
      ],
    });
  });

  // A window of 3: positions 3 and 4 of the first row lie where 0 and 1 were. The short row stands in the last column, so its
  // padding is overwritten first.
  test("is stepped through by buttons, keys and slider", async () => {
    await page.click("[aria-label='First step']");
    await step().toBe("1 / 3");
    await page.click("[aria-label='Step on']");
    await step().toBe("2 / 3");
    await press("ArrowRight");
    await step().toBe("3 / 3");
    await drawn(page);
    await page.hover(".cells", { position: cellAt(0, 0) });
    await pointed().toContain("row 0, column 0: a token · position 3 · tag 1003");
    await page.hover(".cells", { position: cellAt(0, 1) });
    await pointed().toContain("position 4");
    await page.hover(".cells", { position: cellAt(0, 2) });
    await pointed().toContain("position 2 · tag 1002 · dropped next");
    await scrub(1, "2 / 3");
    await page.hover(".cells", { position: cellAt(1, 1) });
    await pointed().toContain("row 1, column 1: padding before");
    await text(".words").toContain("write 1 new column into column 0, in place");
  });

  test("plays to its end and stops there", async () => {
    // It plays for two seconds only: what is waited for is waited for from before.
    const playing = page.waitForSelector("[aria-label='Pause']");
    await page.click("[aria-label='Play']");
    await playing;
    await step().toBe("3 / 3");
    await page.waitForSelector("[aria-label='Play']");
  });

  test("takes drafts, joins and leaves", async () => {
    await page.click("[data-add=draft]");
    await page.fill("#card-2-columns", "2");
    await page.fill("#card-2-accept", "1, 2");
    await page.click("[data-add=join]");
    await page.fill("#card-3-lengths", "2");
    await page.click("[data-add=leave]");
    await expect.poll(async () => (await scenario()).ops.slice(3)).toEqual([
      { op: "round_begin" },
      { op: "append", tokens: [[1005, 1006], [2003, 2004]] },
      { op: "round_rollback", keep: [1, 2] },
      { op: "extend", rows: [[3000, 3001]] },
      { op: "filter", keep: [1, 2] },
    ]);
    await count(".rows tbody tr").toBe(2);
  });
});

describe("what is refused", () => {
  test("is said at the field of its card, in the planner's words", async () => {
    await openPreset(page, "ragged");
    await page.click("#side-build");
    await page.fill("#card-2-accept", "2, 9");
    await text("#card-2-accept-problem").toBe("round_rollback.keep: 9 for row 1, must lie in 0..=3");
    await attribute("#card-2-accept", "aria-invalid").toBe("true");
    await attribute("#card-2-accept", "aria-describedby").toBe("card-2-accept-problem");
    await page.fill("#card-2-accept", "2, 3");
    await page.locator("#card-2-accept-problem").waitFor({ state: "detached" });
  });

  test("is said at the field of the cache", async () => {
    await openPreset(page, "sinks");
    await page.click("#side-build");
    await page.fill("#sinks", "8");
    await text("#sinks-problem").toBe("cache.sinks: 8, must lie in 0..=7");
  });

  test("is said below the JSON, with its line, and what came before stays", async () => {
    await openPreset(page, "first-wrap");
    await page.click("#side-json");
    await page.fill("#json", '{\n "cache": {"kind": "rotating", "max_size": 4},\n "ops": [\n  {"op": "merge", "rows": [[1, 2]]},\n  {"op": "append", "tokens": [[3], [4]]}\n ]\n}');
    await text("#json-problem").toBe("line 5: append.tokens: 2 entries for 1 rows");
    await step().toBe("1 / 1");
    await page.fill("#json", '{"cache": ');
    await text("#json-problem").toContain("JSON");
    await step().toBe("1 / 1");
  });

  test("stays in the field when it is no number at all", async () => {
    await openPreset(page, "first-wrap");
    await page.click("#side-build");
    await page.fill("#card-0-lengths", "3, x");
    await text("#card-0-lengths-problem").toBe('"x" is no number');
    await expect.poll(() => page.inputValue("#card-0-lengths")).toBe("3, x");
  });
});

describe("cache and mask", () => {
  // W=6, rows of 7 and 5 tokens: three drafted ones each. The first drafted token of row 0 stands at position 7 and sees 2..7.
  beforeEach(async () => {
    await openPreset(page, "ragged");
    await scrub(3, "4 / 6");
  });

  test("a query says what it sees", async () => {
    await page.hover(".mask", { position: lineAt(0) });
    await pointed().toBe("row 0, query at position 7: sees positions 2–7 · as defined");
    await page.hover(".mask", { position: lineAt(5) });
    await pointed().toBe("row 1, query at position 7: sees positions 2–7 · as defined");
  });

  // The ring keeps columns 2 to 6 of the row and takes three more: eight columns, positions 2 to 9.
  test("a key says who sees it", async () => {
    await page.hover(".cells", { position: cellAt(0, 0) });
    await pointed().toContain("position 2 · tag 1002 · ");
    await pointed().toContain("seen by the query at 7");
    await page.hover(".cells", { position: cellAt(0, 5) });
    await pointed().toContain("seen by the queries at 7–9");
  });

  test("pointing at a query outlines its keys in the cache, and back", async () => {
    const picture = (selector: string) => page.locator(selector).screenshot({ animations: "disabled" });
    await page.mouse.move(5, 5);
    await pointed().toContain("Point at a cell or a query");
    await rest(page);
    const before = { cells: await picture(".cells"), mask: await picture(".mask") };
    // A picture that differs is only the effect of pointing where one that nothing happened to does not.
    expect(before.cells.equals(await picture(".cells"))).toBe(true);
    expect(before.mask.equals(await picture(".mask"))).toBe(true);
    await page.hover(".mask", { position: lineAt(2) });
    await pointed().toContain("row 0, query at position 9");
    await drawn(page);
    expect(before.cells.equals(await picture(".cells"))).toBe(false);
    await page.hover(".cells", { position: cellAt(1, 4) });
    await pointed().toContain("row 1, column 4");
    await drawn(page);
    expect(before.mask.equals(await picture(".mask"))).toBe(false);
  });

  test("arrow keys move a cursor in both", async () => {
    await page.locator(".cells").press("ArrowRight");
    await page.locator(".cells").press("ArrowDown");
    await pointed().toContain("row 1, column 0");
    await page.locator(".cells").press("ArrowRight");
    await pointed().toContain("row 1, column 1");
    await page.locator(".mask").press("ArrowDown");
    await page.locator(".mask").press("ArrowDown");
    await pointed().toContain("row 0, query at position 8");
    await step().toBe("4 / 6");
  });

  test("temporal order puts the oldest column first", async () => {
    await scrub(5, "6 / 6");
    await page.hover(".cells", { position: cellAt(0, 0) });
    await pointed().toContain("column 0: a token · position 9");
    await press("t");
    await page.waitForSelector("[aria-pressed=true]:text-is('Temporal')");
    // The pointer has to move for the page to hear of it.
    await page.hover(".cells", { position: cellAt(0, 1) });
    await pointed().toContain("column 2: a token · position 5");
    await page.hover(".cells", { position: cellAt(0, 0) });
    await pointed().toContain("column 1: a token · position 4");
  });

  test("both have a table beside them", async () => {
    const lines = (table: string) => page.locator(`details:has-text("${table}") tbody tr`);
    await page.click("text=Cells of row 0 as a table");
    const cells = lines("Cells of row 0 as a table");
    await expect.poll(() => cells.count()).toBe(8);
    // Inside a round nothing is dropped: any of it may be taken back.
    expect(await cells.first().innerText()).toMatch(/a token\s+2\s+1002\s+no/);
    await page.click("text=Queries of row 0 as a table");
    const queries = lines("Queries of row 0 as a table");
    // Three drafted tokens.
    await expect.poll(() => queries.count()).toBe(3);
    expect(await queries.first().innerText()).toMatch(/^7\s+0–5\s+2–7\s+2–7\s+yes/);
  });
});

describe("a donor", () => {
  const lent = (row: number) => text(`[aria-label=Lent] tbody tr >> nth=${row}`);

  // A window of 4 over prompts of 3 and 5 tokens, the first padded by 2: it lends its three, the second its newest four.
  test("says amid a prefill what of each row may be read", async () => {
    await openPreset(page, "donor");
    await step().toBe("4 / 7");
    await text(".words").toContain("copy columns 0 to 4 of every row out");
    await lent(0).toMatch(/^0\s+0–2\s+0–2\s+0–2$/);
    await lent(1).toMatch(/^1\s+1–4\s+1–4\s+1–4$/);
    await page.hover(".cells", { position: cellAt(0, 3) });
    await pointed().toContain("row 0, column 3: padding after · not lent");
    await page.hover(".cells", { position: cellAt(1, 0) });
    await pointed().toContain("position 0 · tag 2000 · dropped next · not lent");
    await page.hover(".cells", { position: cellAt(1, 1) });
    await pointed().toContain("position 1 · tag 2001 · dropped next · lent");
  });

  // Turned: column 0 holds the newest token, and the copy is in the order of time.
  test("is in the order of time", async () => {
    await openPreset(page, "donor");
    await scrub(6, "7 / 7");
    await lent(0).toMatch(/^0\s+0–3\s+0–3\s+1–3, 0$/);
    await lent(1).toMatch(/^1\s+2–5\s+0–3\s+1–3, 0$/);
  });

  test("can be built", async () => {
    await openPreset(page, "first-wrap");
    await page.click("#side-build");
    await page.selectOption("[aria-label='Add one operation']", "donor");
    await expect.poll(async () => (await scenario()).ops.at(-1)).toEqual({ op: "donor" });
  });
});

describe("upstream beside what is right", () => {
  test("BR-01: the lost key is named, outlined and told apart", async () => {
    await openPreset(page, "br-01");
    await page.click("#pane-laws");
    await text(".laws .place").toBe("row 0 at position 2: does not see 0");
    const upstream = page.locator("[data-side=upstream]");
    await upstream.locator(".mask").hover({ position: lineAt(0) });
    await pointed().toBe("row 0, query at position 2: sees positions 1–2 · must see 0–2 · does not see column 0");
    await page.locator("[data-side=right] .mask").hover({ position: lineAt(0) });
    await pointed().toBe("row 0, query at position 2: sees positions 0–2 · as defined");
  });

  test("BR-02: upstream stops where we go on", async () => {
    await openPreset(page, "br-02");
    await text("[data-side=upstream] .refused").toContain("Step 4 is refused: append.tokens: a padded prefill is pending");
    await step().toBe("4 / 6");
    expect(await page.locator("[data-side=right] .refused").count()).toBe(0);
  });

  test("BR-03: the sinks are hidden from the later queries", async () => {
    await openPreset(page, "br-03");
    await page.locator("[data-side=upstream] .mask").hover({ position: lineAt(3) });
    // W=8 with two sinks: the query at 13 sees 0, 1 and the newest six, 8 to 13.
    await pointed().toContain("must see 0–1, 8–13");
    await pointed().toContain("does not see column 0, 1");
  });

  test("understated padding: a copy would take a column that holds no token", async () => {
    await openPreset(page, "padding");
    await page.click("#pane-laws");
    await text(".laws .place").toBe("row 0, column 5, which holds none of its tokens");
  });

  test("any scenario can be compared", async () => {
    await openPreset(page, "first-wrap");
    await press("c");
    await count(".sheet").toBe(2);
    await press("c");
    await count(".sheet").toBe(1);
  });
});

describe("sharing", () => {
  test("the address restores the whole state", async () => {
    await openPreset(page, "br-01");
    await scrub(1, "2 / 5");
    await press("t");
    await press("m");
    await press("ArrowDown");
    // The address follows when the page has been left alone for a moment.
    await expect.poll(() => decode(new URL(page.url()).hash)).toMatchObject({ step: 1, row: 1, order: "temporal", form: "runs", compare: true });
    await rest(page);
    const again = await visit(browser, page.url());
    const seen = async (p: Page) => [
      await p.locator(".count").innerText(), await p.locator(".toolbar").innerText(), await p.locator("tr.selected").innerText(),
      await p.locator(".sheet").count(), await p.locator(".about h2").innerText(),
      await p.locator(".choice [aria-pressed=true]:text-matches('Temporal|Runs')").count(),
    ];
    await rest(again.page);
    const [before, after] = [await seen(page), await seen(again.page)];
    expect(after).toEqual(before);
    expect(after[0]).toBe("2 / 5");
    expect(after[5]).toBe(2);
    await again.close();
  });

  test("copy link, JSON and Rust test", async () => {
    await openPreset(page, "br-29");
    await page.click("text=Copy link");
    await page.waitForSelector(".notice:has-text('clipboard')");
    expect(await clipboard()).toMatch(/\/inspect\/#s=[\w-]+$/);
    await page.click("text=Copy JSON");
    await page.waitForSelector(".notice:has-text('The scenario')");
    expect(JSON.parse(await clipboard()).cache).toEqual({ kind: "rotating", max_size: 3 });
    await page.click("text=Copy Rust test");
    await page.waitForSelector(".notice:has-text('A Rust test')");
    expect(await clipboard()).toMatch(/^#\[test\]\nfn exactly_w_keys_br_29\(\) \{/);
  });

  test("save and picture are files", async () => {
    await openPreset(page, "br-01");
    const saved = page.waitForEvent("download");
    await page.click("nav >> text=Save");
    expect((await saved).suggestedFilename()).toBe("A-lost-oldest-key-BR-01.jsonl");
    const picture = page.waitForEvent("download");
    await page.click("text=PNG");
    const png = readFileSync(await (await picture).path());
    expect(png.subarray(1, 4).toString()).toBe("PNG");
    expect(png.readUInt32BE(16)).toBeGreaterThan(400);
  });

  test("a dropped file is opened", async () => {
    const line = '{"id": "dropped", "scenario": {"cache": {"kind": "full"}, "ops": [{"op": "empty", "rows": 3}]}}';
    const transfer = await page.evaluateHandle((line) => {
      const data = new DataTransfer();
      data.items.add(new File([line], "dropped.jsonl"));
      return data;
    }, line);
    await page.dispatchEvent("main", "drop", { dataTransfer: transfer });
    await page.waitForSelector(".about h2:has-text('dropped')");
    await count(".rows tbody tr").toBe(3);
  });
});

describe("a geometry log", () => {
  const open = (body: string) => page.locator(".live input[type=file]").setInputFiles({ name: "log.jsonl", mimeType: "text/plain", buffer: Buffer.from(body) });

  test("plays, by group and layout, and is saved as a scenario", async () => {
    await page.click("#pane-live");
    await open(readFileSync(LOG, "utf8"));
    await page.waitForSelector(".about h2:has-text('group 3, full attention')");
    await step().toBe("1 / 11");
    await page.selectOption(".live select", { label: "group 3, a window of 4" });
    await page.waitForSelector(".about h2:has-text('group 3, a window of 4')");
    await press("End");
    await step().toBe("11 / 11");
    await press("ArrowLeft");
    await text(".words").toContain("keep rows 0, 2");
    const saved = page.waitForEvent("download");
    await page.click(".live >> text=Save as a scenario");
    const { scenario } = JSON.parse(readFileSync(await (await saved).path(), "utf8"));
    expect(scenario.cache).toEqual({ kind: "rotating", max_size: 4 });
    expect(scenario.ops).toHaveLength(11);
  });

  test("whose state differs says where", async () => {
    await page.click("#pane-live");
    await open(readFileSync(LOG, "utf8").replace('"ring_index":2', '"ring_index":3'));
    await page.waitForSelector(".notice:has-text('append.state.ring_index: recorded 3, replayed 2')");
  });

  test("that is none says so", async () => {
    await page.click("#pane-live");
    await open('{"group": 1, "layout": 0}\n');
    await page.waitForSelector(".notice:has-text('log.jsonl: group 1 did not say what its layout 0 is')");
  });
});

test("the tour leads from the first stop to the last", async () => {
  await page.click("nav >> text=Learn");
  const title = () => page.locator(".learn h2").innerText();
  const titles = [await title()];
  while (titles.length < 12) {
    await page.click(".learn button:text-is('Next')");
    await text(".learn .hint").toBe(`Stop ${titles.length + 1} of 12`);
    titles.push(await title());
  }
  expect(titles[0]).toBe("What is a KV cache?");
  expect(titles).toContain("Why a turned ring needs care");
  expect(new Set(titles).size).toBe(12);
  await count(".learn button:text-is('Next')").toBe(0);
});

test("memory is counted for named models", async () => {
  await page.click("#pane-memory");
  await page.selectOption(".memory select", "SmolLM2 135M");
  await page.fill(".memory input >> nth=0", "300");
  await page.fill(".memory input >> nth=1", "2");
  // 30 layers of 3 heads of 64, keys and values of 2 bytes, in 512 columns of 2 rows: 23,592,960 bytes.
  await text(".bars tbody tr >> nth=0").toMatch(/16-bit\s+23 kB\s+24 MB/);
});

test("the page can be used by keys alone", async () => {
  await openPreset(page, "ragged");
  await page.keyboard.press("?");
  await page.waitForSelector("dialog[open]");
  await text("dialog").toContain("physical or temporal order");
  await page.keyboard.press("Escape");
  await page.focus("#side-gallery");
  await page.keyboard.press("ArrowRight");
  await attribute("#side-build", "aria-selected").toBe("true");
  await page.keyboard.press("2");
  await attribute("#pane-laws", "aria-selected").toBe("true");
  await page.focus(".controls [aria-label='First step']");
  await page.keyboard.press("Enter");
  await step().toBe("1 / 6");
});
