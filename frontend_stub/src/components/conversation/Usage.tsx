/** What the conversation has used so far: one quiet line, and the details on request. */
import { useId, useRef } from "react";
import type { LlmMetrics } from "../../protocol/events";

function count(value: number): string {
  if (value < 1_000) return String(value);
  if (value < 1_000_000) return `${(value / 1_000).toFixed(value < 10_000 ? 1 : 0)}k`;
  return `${(value / 1_000_000).toFixed(1)}M`;
}

function money(value: number): string {
  if (value === 0) return "$0";
  return value < 0.01 ? `$${value.toFixed(4)}` : `$${value.toFixed(2)}`;
}

/** How full the model's window is, as the marks on a hull that show its draught. */
function Draught({ used, size }: { readonly used: number; readonly size: number }) {
  const share = Math.min(1, used / size);
  return (
    <div className="draught" role="img" aria-label={`${Math.round(share * 100)} percent of the model's window is used`}>
      <div className="draught-bar">
        <div className="draught-fill" style={{ width: `${share * 100}%` }} />
      </div>
      <span>
        {count(used)} of {count(size)}
      </span>
    </div>
  );
}

export function Usage({ metrics }: { readonly metrics: LlmMetrics | null }) {
  const id = useId();
  const panel = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const usage = metrics?.accumulated_token_usage;
  if (metrics === null || usage === undefined || usage === null) return null;
  const sent = usage.prompt_tokens ?? 0;
  const written = usage.completion_tokens ?? 0;
  const cost = metrics.accumulated_cost ?? 0;
  const budget = metrics.max_budget_per_task ?? null;
  const windowSize = usage.context_window ?? 0;
  const rows: (readonly [string, string])[] = [
    ["Sent to the model", count(sent)],
    ["of it read from cache", count(usage.cache_read_tokens ?? 0)],
    ["Written by the model", count(written)],
    ["Cost", money(cost)],
  ];
  if (budget !== null) rows.push(["Budget", money(budget)]);

  const toggle = () => {
    if (panel.current === null || button.current === null) return;
    panel.current.togglePopover();
    const at = button.current.getBoundingClientRect();
    panel.current.style.left = `${Math.max(8, Math.min(at.left, window.innerWidth - panel.current.offsetWidth - 8))}px`;
    panel.current.style.top = `${at.top - panel.current.offsetHeight - 6}px`;
  };

  return (
    <>
      <button ref={button} type="button" className="usage" aria-controls={id} data-testid="usage" onClick={toggle}>
        <span className="visually-hidden">Used so far: </span>
        {count(sent + written)} tokens · {money(cost)}
      </button>
      <div ref={panel} id={id} className="menu usage-panel" popover="auto" data-testid="usage-panel">
        <h2>Used so far</h2>
        <dl>
          {rows.map(([label, value]) => (
            <div key={label} className="usage-row">
              <dt>{label}</dt>
              <dd>{value}</dd>
            </div>
          ))}
        </dl>
        {windowSize > 0 && <Draught used={usage.per_turn_token ?? 0} size={windowSize} />}
      </div>
    </>
  );
}
