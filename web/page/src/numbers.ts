// Numbers for people. The planner computed them; here they only get their units.

const UNITS = ["bytes", "kB", "MB", "GB", "TB"];

/** `4.2 MB`: steps of 1,000. */
export function bytes(n: number): string {
  let unit = 0;
  while (n >= 1000 && unit < UNITS.length - 1) {
    n /= 1000;
    unit++;
  }
  return `${n < 10 && unit > 0 ? n.toFixed(1) : Math.round(n)} ${UNITS[unit]}`;
}

/** `1 column`, `1,234 columns`. */
export function count(n: number, thing: string): string {
  return `${n.toLocaleString("en")} ${thing}${n === 1 ? "" : "s"}`;
}
