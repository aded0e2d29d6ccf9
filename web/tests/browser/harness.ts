// A static server for the built page and a headless Chromium. A page that logs an error or asks another origin fails its test.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { readFile } from "node:fs/promises";
import type { AddressInfo } from "node:net";
import { extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium, type Browser, type BrowserContextOptions, type Page } from "playwright-core";

const DIST = fileURLToPath(new URL("../../dist", import.meta.url));
const INSTALLED = process.platform === "darwin" ? "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome" : "/usr/bin/chromium";
const CHROMIUM = process.env.CHROMIUM ?? INSTALLED;
const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"];

export const DOCS = fileURLToPath(new URL("../../../docs", import.meta.url));
/** The smallest screen the page has to be good at. */
export const VIEWPORT = { width: 1280, height: 720 };

const TYPES: Record<string, string> = {
  ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".wasm": "application/wasm",
};

export type Route = (request: IncomingMessage, response: ServerResponse) => void;

/** Serves the page below `/inspect/`, like any static host, and some routes of a server besides. */
export function serve(routes: Record<string, Route> = {}): Promise<Server> {
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url ?? "/", "http://localhost");
    const route = routes[pathname];
    if (route) route(request, response);
    else void file(pathname, response);
  });
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server)));
}

async function file(pathname: string, response: ServerResponse): Promise<void> {
  const name = pathname.startsWith("/inspect/") ? pathname.slice("/inspect/".length) || "index.html" : null;
  try {
    if (name === null) throw new Error("outside");
    const body = await readFile(join(DIST, normalize(name)));
    response.writeHead(200, { "content-type": TYPES[extname(name)] ?? "application/octet-stream" }).end(body);
  } catch {
    response.writeHead(404).end("there is no such file");
  }
}

export const origin = (server: Server): string => `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
export const address = (server: Server): string => `${origin(server)}/inspect/`;

export const launch = (flags: string[] = []): Promise<Browser> =>
  chromium.launch({ executablePath: CHROMIUM, args: [...FLAGS, ...flags] });

export interface Watched {
  page: Page;
  /** Closes the page; throws when it logged an error, threw, or asked another origin. */
  close: () => Promise<void>;
}

export async function visit(browser: Browser, url: string, options: BrowserContextOptions = {}): Promise<Watched> {
  const context = await browser.newContext({ viewport: VIEWPORT, ...options });
  const page = await context.newPage();
  const faults: string[] = [];
  page.on("pageerror", (error) => faults.push(`threw ${error.stack ?? error}`));
  page.on("console", (message) => {
    // The browser logs every answer that is not a success; those that a test makes on purpose are looked at by the test.
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource")) faults.push(`logged ${message.text()}`);
  });
  page.on("request", (request) => {
    const asked = new URL(request.url());
    if (["http:", "https:", "ws:"].includes(asked.protocol) && asked.origin !== new URL(url).origin) faults.push(`asked ${request.url()}`);
  });
  await page.goto(url);
  await page.waitForSelector(".sheet .cells");
  await planned(page);
  const close = async () => {
    await context.close();
    if (faults.length > 0) throw new Error(faults.join("\n"));
  };
  return { page, close };
}

/** Two frames and a task later: what is rendered now has its listeners and is drawn. */
export const drawn = (page: Page): Promise<void> =>
  page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)))));

/** Waits until every step of the scenario is planned and drawn. */
export async function planned(page: Page): Promise<void> {
  await page.locator("progress").waitFor({ state: "detached", timeout: 120_000 });
  await drawn(page);
}

/** Opens a preset of the gallery and waits until it is there. */
export async function openPreset(page: Page, id: string): Promise<void> {
  await page.click(`[data-preset="${id}"]`);
  await page.waitForSelector(`[data-preset="${id}"][aria-pressed=true]`);
  await planned(page);
}

/** Longer than the panels lag behind a step. */
const QUIET_MS = 250;

/** Waits until the page rests: all is planned, nothing has been written into it for a while, and the last of it is drawn. */
export async function rest(page: Page): Promise<void> {
  await planned(page);
  await page.evaluate((quiet) => new Promise<void>((done) => {
    const end = () => {
      changes.disconnect();
      done();
    };
    let timer = setTimeout(end, quiet);
    const changes = new MutationObserver(() => {
      clearTimeout(timer);
      timer = setTimeout(end, quiet);
    });
    changes.observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
  }), QUIET_MS);
  await drawn(page);
}

/** The middle of a cell of a small scenario, where columns are as wide as they get: 56 by 34 pixels, right of the names. */
export const cellAt = (row: number, place: number) => ({ x: 58 + 56 * (place + 0.5), y: 30 + 34 * (row + 0.5) });
/** The middle of a line of the mask: 20 pixels each. */
export const lineAt = (line: number) => ({ x: 100, y: 2 + 20 * (line + 0.5) });
