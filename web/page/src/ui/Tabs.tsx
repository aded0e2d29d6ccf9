// Tabs as the ARIA practices describe them: one stop of the Tab key, arrows between them.
import type { ComponentChildren } from "preact";

interface Props<T extends string> {
  label: string;
  name: string;
  tabs: [T, string][];
  selected: T;
  select: (tab: T) => void;
  children: ComponentChildren;
}

export function Tabs<T extends string>({ label, name, tabs, selected, select, children }: Props<T>) {
  const move = (event: KeyboardEvent) => {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (by === 0) return;
    event.preventDefault();
    event.stopPropagation();
    const at = tabs.findIndex(([tab]) => tab === selected);
    const [next] = tabs[(at + by + tabs.length) % tabs.length];
    select(next);
    document.getElementById(`${name}-${next}`)?.focus();
  };
  return (
    <>
      <div class="tabs" role="tablist" aria-label={label} onKeyDown={move}>
        {tabs.map(([tab, title]) => (
          <button
            key={tab} id={`${name}-${tab}`} role="tab" aria-selected={tab === selected} aria-controls={`${name}-panel`}
            tabIndex={tab === selected ? 0 : -1} onClick={() => select(tab)}
          >
            {title}
          </button>
        ))}
      </div>
      <div class="panel" id={`${name}-panel`} role="tabpanel" aria-labelledby={`${name}-${selected}`} tabIndex={0}>{children}</div>
    </>
  );
}
