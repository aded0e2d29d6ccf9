// Every main view in both themes: no accessibility violation, nothing outside the window, a picture in docs/.
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Server } from "node:http";
import { join } from "node:path";
import type { AxeResults } from "axe-core";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { LOG } from "../native.ts";
import { DOCS, VIEWPORT, address, drawn, lineAt, launch, openPreset, rest, serve, visit } from "./harness.ts";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

interface View {
  name: string;
  /** Leads from the page as it opens to the view. */
  go: (page: Page) => Promise<unknown>;
  /** The picture in docs/, in the light theme and, where it says so, in the dark one too. */
  picture?: "light" | "both";
}

/** Moves the slider and waits until the step is shown. */
async function scrub(page: Page, to: number): Promise<void> {
  await page.locator(".scrub").fill(String(to));
  await page.waitForSelector(`.count:text-matches("^${to + 1} / ")`);
  await drawn(page);
}

const VIEWS: View[] = [
  { name: "overview", picture: "both", go: async (page) => {
    await openPreset(page, "ragged");
    await scrub(page, 3);
    await page.hover(".mask", { position: lineAt(1) });
    await page.waitForSelector(".pointed:has-text('query at position 8')");
  } },
  { name: "compare", picture: "both", go: async (page) => {
    await openPreset(page, "br-01");
    await page.click("#pane-laws");
  } },
  { name: "refused", go: (page) => openPreset(page, "br-02") },
  { name: "sinks", picture: "light", go: async (page) => {
    await openPreset(page, "br-03");
    await page.click("#pane-laws");
  } },
  { name: "padding", go: async (page) => {
    await openPreset(page, "padding");
    await page.click("#pane-laws");
  } },
  { name: "builder", picture: "light", go: async (page) => {
    await openPreset(page, "ragged");
    await page.click("#side-build");
    await page.fill("#card-2-accept", "2, 9");
  } },
  { name: "json", go: async (page) => {
    await page.click("#side-json");
    await page.fill("#json", '{"cache": {"kind": "full"}, "ops": [{"op": "spin"}]}');
  } },
  { name: "padded", go: async (page) => {
    await openPreset(page, "right-padding");
    await scrub(page, 3);
  } },
  { name: "donor", go: (page) => openPreset(page, "donor") },
  { name: "tables", go: async (page) => {
    await openPreset(page, "ragged");
    await scrub(page, 3);
    await page.click("text=Cells of row 0 as a table");
    await page.click("text=Queries of row 0 as a table");
    await page.waitForSelector("details:has-text('Queries of row 0 as a table') tbody tr");
  } },
  { name: "large", picture: "light", go: async (page) => {
    await openPreset(page, "large");
    await page.waitForSelector(".count:has-text('1 / 28')");
    await scrub(page, 14);
  } },
  { name: "memory", picture: "light", go: async (page) => {
    await page.click("#pane-memory");
    await page.selectOption(".memory select", "Gemma 3 4B");
  } },
  { name: "live", picture: "light", go: async (page) => {
    await page.click("#pane-live");
    await page.locator(".live input[type=file]").setInputFiles(LOG);
    await page.waitForSelector(".live select");
    await page.selectOption(".live select", { index: 1 });
    await scrub(page, 7);
  } },
  { name: "try", go: async (page) => {
    await page.click("#pane-try");
    await page.waitForSelector(".try");
  } },
  { name: "tour", picture: "light", go: async (page) => {
    await page.click("nav >> text=Learn");
    await page.click(".stops >> text=The ring turns");
  } },
  { name: "keys", go: async (page) => {
    await page.keyboard.press("?");
    await page.waitForSelector("dialog[open]");
  } },
];

/** Elements that reach beyond the window or whose text is cut off. */
function cutOff(): string[] {
  const name = (e: Element) => `${e.tagName.toLowerCase()}.${e.className} ${e.textContent?.slice(0, 40)}`;
  const beyond = [...document.querySelectorAll("header *, .tabs *, .controls *, .toolbar *, .sheet, main > *")].filter((e) => {
    const { left, right, top, bottom, width } = e.getBoundingClientRect();
    return width > 0 && (left < -1 || right > innerWidth + 1 || top < -1 || bottom > innerHeight + 1);
  });
  const cut = [...document.querySelectorAll("button, h1, h2, h3, td, dd, label > span, th, caption, .problem, .panel")].filter(
    (e) => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline",
  );
  const page = document.documentElement;
  const scrolls = page.scrollWidth > innerWidth || page.scrollHeight > innerHeight ? ["the page scrolls"] : [];
  return [...scrolls, ...beyond.map((e) => `beyond: ${name(e)}`), ...cut.map((e) => `cut: ${name(e)}`)];
}

async function violations(page: Page): Promise<string[]> {
  await page.evaluate(AXE);
  const results = await page.evaluate(() => (window as unknown as { axe: { run: () => Promise<AxeResults> } }).axe.run());
  return results.violations.flatMap((v) => v.nodes.map((node) => `${v.id}: ${node.html.slice(0, 160)} ${node.failureSummary ?? ""}`));
}

let server: Server;
let browser: Browser;

beforeAll(async () => {
  mkdirSync(join(DOCS, "inspector"), { recursive: true });
  server = await serve();
  browser = await launch();
});
afterAll(async () => {
  await browser.close();
  server.close();
});

for (const theme of ["light", "dark"] as const) {
  describe(theme, () => {
    test.each(VIEWS)("$name", async ({ name, go, picture }) => {
      const { page, close } = await visit(browser, address(server), { colorScheme: theme, reducedMotion: "reduce" });
      await go(page);
      await rest(page);
      if (picture === "both" || (picture && theme === "light")) {
        await page.screenshot({ path: join(DOCS, "inspector", theme === "dark" ? `${name}-dark.png` : `${name}.png`) });
      }
      expect(await page.evaluate(cutOff)).toEqual([]);
      expect(await violations(page)).toEqual([]);
      await close();
    });
  });
}

test("the theme can be chosen, and is drawn", async () => {
  const { page, close } = await visit(browser, address(server), { colorScheme: "light" });
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await rest(page);
  const before = await background();
  const cells = await page.locator(".cells").screenshot();
  await page.click("[aria-label='Light or dark']");
  await expect.poll(background).not.toBe(before);
  await drawn(page);
  expect((await page.locator(".cells").screenshot()).equals(cells)).toBe(false);
  expect(VIEWPORT).toEqual({ width: 1280, height: 720 });
  await close();
});

test("with reduced motion nothing is animated", async () => {
  const { page, close } = await visit(browser, address(server), { reducedMotion: "reduce" });
  const moving = await page.evaluate(() =>
    [...document.querySelectorAll("*")].filter((e) => {
      const style = getComputedStyle(e);
      return style.transitionDuration !== "0s" || style.animationName !== "none";
    }).length,
  );
  expect(moving).toBe(0);
  await close();
});
